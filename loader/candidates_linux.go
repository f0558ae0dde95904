//go:build (amd64 || arm64) && !nocuda

package loader

import (
	"path/filepath"
	"runtime"
	"slices"
)

// soname is the library's name at its stable ABI. The plain libcuda.so is never
// looked for: where it exists alone it is the toolkit's stub.
const soname = "libcuda.so.1"

// candidates lists the files to try when the system's loader does not know the
// library, or may not be asked: it knows its cache and LD_LIBRARY_PATH only.
func candidates() []string {
	dirs := []string{
		"/usr/lib/wsl/lib",        // Windows Subsystem for Linux
		"/usr/local/nvidia/lib64", // containers
		"/run/opengl-driver/lib",  // NixOS
	}
	switch runtime.GOARCH {
	case "amd64":
		dirs = append(dirs,
			"/usr/lib/x86_64-linux-gnu",
			"/usr/lib/x86_64-linux-gnu/nvidia/current") // Debian
	case "arm64":
		dirs = append(dirs,
			"/usr/lib/aarch64-linux-gnu/nvidia", // Jetson
			"/usr/lib/aarch64-linux-gnu/tegra",  // Jetson, older releases
			"/usr/lib/aarch64-linux-gnu",
			"/usr/lib/aarch64-linux-gnu/nvidia/current") // Debian
	}
	dirs = append(dirs, "/usr/lib64", "/usr/lib")

	files := cached(soname)
	for _, dir := range dirs {
		if file := filepath.Join(dir, soname); !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	return files
}
