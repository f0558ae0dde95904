// Command gen reads driver.API, the table with one line per driver function,
// and writes what follows from it: the stubs and the list of functions
// (driver/zapi.go), the wrappers of them all (driver/zwrap.go), the bindings to C
// (loader/zbind.go) and the table in the documentation (docs/functions.md). It
// runs by "go generate ./driver".
package main

import (
	"flag"
	"log"
	"os"
	"path/filepath"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("gen: ")
	root := flag.String("root", "..", "the module's root, seen from package driver")
	flag.Parse()

	functions, err := parse(filepath.Join(*root, "driver", "api.go"))
	if err != nil {
		log.Fatal(err)
	}
	for name, write := range map[string]func([]function) ([]byte, error){
		"driver/zapi.go":    stubs,
		"driver/zwrap.go":   wrappers,
		"loader/zbind.go":   bindings,
		"docs/functions.md": table,
	} {
		text, err := write(functions)
		if err != nil {
			log.Fatalf("%s: %v", name, err)
		}
		if err := os.WriteFile(filepath.Join(*root, name), text, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
