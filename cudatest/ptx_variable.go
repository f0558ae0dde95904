package cudatest

import (
	"math/bits"
	"strconv"
	"strings"
)

// ptxVariable is what a declaration says of a variable or a parameter.
type ptxVariable struct{ size, align, line int }

// variable reads a declaration behind its state space, up to its name and
// length.
func (p *ptxParser) variable() (v ptxVariable) {
	vector := 1
	for {
		t := p.next()
		v.line = t.line
		switch size := typeSize(t.text); {
		case t.text == ".align":
			v.align = p.number(1 << 10)
			if bits.OnesCount(uint(v.align)) != 1 {
				p.near(t)
			}
		case t.text == ".v2" || t.text == ".v4":
			vector = int(t.text[2] - '0')
		case size > 0:
			v.size = size
		case t.text == ".ptr": // says more of a pointer: ".ptr .global .align 16"
			if s := p.lex.peek().text; s != "" && s[0] == '.' && s != ".align" {
				p.next()
			}
			if p.accept(".align") {
				p.number(1 << 10)
			}
		case t.identifier() && v.size > 0:
			v.size *= vector
			v.align = max(v.align, v.size)
			return p.length(v)
		default:
			p.near(t)
		}
	}
}

// length reads the lengths of an array, if v is one.
func (p *ptxParser) length(v ptxVariable) ptxVariable {
	for p.accept("[") {
		n := 0 // of memory that the launch sizes
		if p.lex.peek().text != "]" {
			n = p.number(1 << 20)
		}
		p.want("]")
		if n > 0 && v.size > 1<<30/n {
			p.fail(v.line, "Size of variable is too large")
		}
		v.size *= n
	}
	return v
}

// typeSize returns the size of a fundamental type in bytes, 0 for other words.
func typeSize(t string) int {
	switch t {
	case ".texref", ".samplerref", ".surfref":
		return 8
	case ".f16x2", ".bf16x2", ".tf32":
		return 4
	}
	for _, kind := range []string{".bf", ".b", ".u", ".s", ".f"} {
		if n, ok := strings.CutPrefix(t, kind); ok {
			switch n {
			case "8", "16", "32", "64", "128":
				size, _ := strconv.Atoi(n)
				return size / 8
			}
		}
	}
	return 0
}
