package main

import (
	"bytes"
	"fmt"
	"go/format"
	"strings"
)

// As in internal/ccall.
const (
	maxArgs     = 6
	maxWideArgs = 12
)

// bindings writes loader/zbind.go: one closure per function that puts the
// arguments as the C ABI wants them and reads the results back.
func bindings(functions []function) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(header + "//go:build !nocuda && ((linux && (amd64 || arm64)) || (windows && amd64))\n\n")
	b.WriteString("package loader\n\nimport (\n\t\"runtime\"\n\t\"unsafe\"\n\n\t\"github.com/purecuda/cuda/driver\"\n\t\"github.com/purecuda/cuda/internal/ccall\"\n)\n\n")
	b.WriteString("// bind sets the fields of api whose symbols sym finds; sym answers 0 for others. Their\n// calls are made in a scope unless that is nil; functions that are called in none it then\n// leaves alone.\n")
	b.WriteString("func bind(api *driver.API, sym func(name string) uintptr, in *ccall.Scope) {\n")
	for _, f := range functions {
		body, err := binding(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Field, err)
		}
		b.WriteString(body)
	}
	b.WriteString("}\n")
	return format.Source(b.Bytes())
}

func binding(f function) (string, error) {
	var b strings.Builder
	find := fmt.Sprintf("sym(%q)", f.Symbol)
	if f.Else != "" {
		find = fmt.Sprintf("first(sym, %q, %q)", f.Symbol, f.Else)
	}
	found := "fn != 0"
	if f.Unscoped {
		found = "in == nil && fn != 0"
	}
	fmt.Fprintf(&b, "\tif fn := %s; %s {\n", find, found)
	if byValue(f) {
		// A struct by value goes on the stack, in registers or by reference,
		// as the ABI says: purego knows. Opening is never hot.
		fmt.Fprintf(&b, "\t\tvar call func(%s) int32\n\t\tccall.Register(&call, fn)\n", cTypes(f))
		fmt.Fprintf(&b, "\t\tapi.%s = func(%s) (%s) {\n", f.Field, signature(f.Params, "driver."), results(f))
		fmt.Fprintf(&b, "\t\t\tr = driver.Result(in.Around(func() int32 { return call(&%s, %s) }))\n\t\t\treturn\n\t\t}\n\t}\n", f.Results[0].Name, names(f.Params))
		return b.String(), nil
	}
	fmt.Fprintf(&b, "\t\tapi.%s = func(%s) (%s) {\n", f.Field, signature(f.Params, "driver."), results(f))

	var args, keep []string
	in := f.Params
	if f.InOut != "" {
		if len(in) != 1 || in[0].Name != f.InOut || len(f.Results) != 1 {
			return "", fmt.Errorf("inout wants one parameter and one result")
		}
		in = nil
	}
	ref, refAt := "", 0 // the struct, or the number, that is passed by its address
	for _, p := range in {
		switch {
		case isStruct(p.Type) || p.Name == f.Ref:
			if ref != "" || len(f.Results) > 0 {
				return "", fmt.Errorf("one argument by address, and no results then")
			}
			ref, refAt = p.Name, len(args)
			args = append(args, "0")
		case p.Type == "HostFunc":
			args = append(args, "hostCallback()", "uintptr("+p.Name+")")
		case p.Type == "string":
			fmt.Fprintf(&b, "\t\t\t%sText := cString(%s)\n", p.Name, p.Name)
			args = append(args, fmt.Sprintf("uintptr(unsafe.Pointer(&%sText[0]))", p.Name))
			keep = append(keep, p.Name+"Text")
		case p.Type == "unsafe.Pointer":
			keep = append(keep, p.Name)
			fallthrough
		default:
			args = append(args, "uintptr("+p.Name+")")
		}
	}
	var outs, finish []string
	slots := 0 // results that fit a word of the frame
	for _, r := range f.Results {
		switch {
		case r.Type == "string":
			fmt.Fprintf(&b, "\t\t\tbuf := ccall.Buffer(256)\n")
			outs = append(outs, "uintptr(unsafe.Pointer(&buf[0]))", "256")
			keep = append(keep, "buf")
			finish = append(finish, r.Name+" = goString(buf)")
		case isArray(r.Type):
			fmt.Fprintf(&b, "\t\t\tbuf := ccall.Buffer(len(%s))\n", r.Name)
			outs = append(outs, "uintptr(unsafe.Pointer(&buf[0]))")
			keep = append(keep, "buf")
			finish = append(finish, fmt.Sprintf("copy(%s[:], buf)", r.Name))
		default:
			finish = append(finish, fmt.Sprintf("%s = *(*%s)(unsafe.Pointer(&frame.Out[%d]))", r.Name, qualify(r.Type, "driver."), slots))
			outs = append(outs, "0")
			slots++
		}
	}
	at := 0
	if f.OutLast {
		at = len(args)
		args = append(args, outs...)
	} else {
		args = append(outs, args...)
	}
	frame, limit := "Frame", "MaxArgs"
	if len(args) > maxArgs {
		frame, limit = "Wide", "MaxWideArgs"
		if slots > 0 || ref != "" || len(args) > maxWideArgs {
			return "", fmt.Errorf("%d arguments are too many, or too many for results", len(args))
		}
	}
	fmt.Fprintf(&b, "\t\t\tframe := ccall.%s{Fn: fn, Arg: [ccall.%s]uintptr{%s}}\n", frame, limit, strings.Join(args, ", "))
	if f.InOut != "" {
		fmt.Fprintf(&b, "\t\t\tframe.Out[0] = uint64(%s)\n", f.InOut)
	}
	switch {
	case ref != "":
		fmt.Fprintf(&b, "\t\t\tr = driver.Result(frame.CallIn(in, %d, unsafe.Pointer(&%s), unsafe.Sizeof(%s)))\n", refAt, ref, ref)
	case slots > 0:
		fmt.Fprintf(&b, "\t\t\tr = driver.Result(frame.CallOut(in, %d, %d))\n", at, slots)
	default:
		fmt.Fprintf(&b, "\t\t\tr = driver.Result(frame.Call(in))\n")
	}
	for _, k := range keep {
		fmt.Fprintf(&b, "\t\t\truntime.KeepAlive(%s)\n", k)
	}
	for _, s := range finish {
		fmt.Fprintf(&b, "\t\t\t%s\n", s)
	}
	b.WriteString("\t\t\treturn\n\t\t}\n\t}\n")
	return b.String(), nil
}

func isArray(typ string) bool {
	return typ == "UUID" || typ == "IPCEventHandle" || typ == "IPCMemHandle"
}

// isStruct reports whether typ is a struct of package driver. C takes its address.
func isStruct(typ string) bool { return typ == "Memcpy2D" || typ == "MemAccess" }

// byValue reports whether f takes an array type by value.
func byValue(f function) bool {
	for _, p := range f.Params {
		if isArray(p.Type) {
			return true
		}
	}
	return false
}

func results(f function) string {
	return signature(append(f.Results[:len(f.Results):len(f.Results)], value{"r", "Result"}), "driver.")
}

// cTypes is the parameter list of the C function, as purego wants it; its
// structs are structs and not arrays.
func cTypes(f function) string {
	s := []string{"*" + qualify(f.Results[0].Type, "driver.")}
	for _, p := range f.Params {
		if isArray(p.Type) {
			s = append(s, "ccall.Struct64")
		} else {
			s = append(s, qualify(p.Type, "driver."))
		}
	}
	return strings.Join(s, ", ")
}

func names(vs []value) string {
	var s []string
	for _, v := range vs {
		if isArray(v.Type) {
			s = append(s, "ccall.Struct64{Bytes: "+v.Name+"}")
		} else {
			s = append(s, v.Name)
		}
	}
	return strings.Join(s, ", ")
}
