package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"reflect"
	"strconv"
	"strings"
)

// function is one line of the table.
type function struct {
	Field, Symbol, Else string
	Since               int
	OutLast             bool   // pointers to results come last in C
	InOut               string // the parameter that is passed through its result's pointer
	Ref                 string // the parameter that is passed by its address
	Unscoped            bool   // tables with a context or a mode leave it as it is
	Section             string // the comment above the group of lines
	Note                string // the comment behind the line
	Params, Results     []value
}

// value is a parameter or a result, without the trailing Result.
type value struct{ Name, Type string }

func parse(file string) ([]function, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var api *ast.StructType
	ast.Inspect(f, func(n ast.Node) bool {
		if t, ok := n.(*ast.TypeSpec); ok && t.Name.Name == "API" {
			api, _ = t.Type.(*ast.StructType)
		}
		return api == nil
	})
	if api == nil {
		return nil, fmt.Errorf("%s: no struct API", file)
	}
	var all []function
	section := ""
	for _, field := range api.Fields.List {
		if field.Doc != nil {
			section = strings.TrimSpace(field.Doc.Text())
		}
		sig, ok := field.Type.(*ast.FuncType)
		if !ok || field.Tag == nil && sig.Results == nil {
			continue // not a function of the driver: those have tags, and answer
		}
		fn, err := parseField(field, sig)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", fset.Position(field.Pos()), err)
		}
		fn.Section = section
		all = append(all, fn)
	}
	return all, nil
}

func parseField(field *ast.Field, sig *ast.FuncType) (function, error) {
	if len(field.Names) != 1 || field.Tag == nil {
		return function{}, fmt.Errorf("want one name and a tag")
	}
	quoted, err := strconv.Unquote(field.Tag.Value)
	if err != nil {
		return function{}, err
	}
	tag := reflect.StructTag(quoted)
	fn := function{
		Field:    field.Names[0].Name,
		Symbol:   tag.Get("cu"),
		Else:     tag.Get("else"),
		OutLast:  tag.Get("out") == "last",
		InOut:    tag.Get("inout"),
		Ref:      tag.Get("ref"),
		Unscoped: tag.Get("scope") == "none",
		Params:   values(sig.Params),
		Results:  values(sig.Results),
	}
	if fn.Since, err = strconv.Atoi(tag.Get("since")); err != nil || fn.Symbol == "" {
		return fn, fmt.Errorf("%s: want tags cu and since", fn.Field)
	}
	if field.Comment != nil {
		fn.Note = strings.TrimSpace(field.Comment.Text())
	}
	last := len(fn.Results) - 1
	if last < 0 || fn.Results[last].Type != "Result" {
		return fn, fmt.Errorf("%s: the last result must be a Result", fn.Field)
	}
	fn.Results = fn.Results[:last]
	return fn, nil
}

// values flattens a field list such as (free, total uint64, r Result).
func values(list *ast.FieldList) (all []value) {
	if list == nil {
		return nil
	}
	for _, f := range list.List {
		typ := types.ExprString(f.Type)
		if len(f.Names) == 0 {
			all = append(all, value{Type: typ})
		}
		for _, n := range f.Names {
			all = append(all, value{Name: n.Name, Type: typ})
		}
	}
	return all
}
