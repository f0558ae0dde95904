package cudatest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/purecuda/cuda/driver"
)

// ptxModule is what the simulation wants to know of a PTX text: its kernels.
type ptxModule struct {
	version int // of the language, 10*major + minor
	target  int // sm_90 is 90
	entries map[string]*entry
}

// entry is a kernel as its image declares it.
type entry struct {
	params     []param
	size       int // of all arguments
	maxThreads int // per block
	shared     int // static shared memory, in bytes
}

// param is where an argument of a kernel lies.
type param struct{ offset, size int }

const (
	maxThreads     = 1024  // per block
	maxParamBytes  = 32764 // of all arguments
	maxStaticBytes = 48 << 10
	deviceTarget   = 90 // the compute capability of the simulated devices
)

// ptxError is why a text is refused, in the words of NVIDIA's compiler.
type ptxError struct {
	line int
	text string
	code driver.Result
}

func (e *ptxError) Error() string {
	s := fmt.Sprintf("ptxas application ptx input, line %d; fatal   : %s", e.line, e.text)
	if e.code == driver.ErrorInvalidPTX {
		s += "\nptxas fatal   : Ptx assembly aborted due to errors"
	}
	return s
}

// ptxParser reads the declarations of a text. Of the statements it sees only
// where they begin and end.
type ptxParser struct {
	lex    ptxLexer
	newest int // the newest version of the language that the driver knows
	mod    *ptxModule
}

// parsePTX reads a text for a driver that knows the language up to version
// newest.
func parsePTX(text string, newest int) (m *ptxModule, err *ptxError) {
	p := &ptxParser{lex: newPTXLexer(text), newest: newest, mod: &ptxModule{entries: map[string]*entry{}}}
	defer func() {
		if e, ok := recover().(*ptxError); ok {
			m, err = nil, e
		}
	}()
	p.module()
	return p.mod, nil
}

// fail ends the parsing.
func (p *ptxParser) fail(line int, format string, args ...any) {
	panic(&ptxError{line: line, text: fmt.Sprintf(format, args...), code: driver.ErrorInvalidPTX})
}

func (p *ptxParser) near(t ptxToken) {
	p.fail(t.line, "Parsing error near '%s': syntax error", t.text)
}

// next returns the next token, which must be there.
func (p *ptxParser) next() ptxToken {
	t := p.lex.next()
	if t.bad || t.end() {
		p.near(t)
	}
	return t
}

// want takes the next token, which must be text.
func (p *ptxParser) want(text string) {
	if t := p.next(); t.text != text {
		p.near(t)
	}
}

// accept takes the next token if it is text.
func (p *ptxParser) accept(text string) bool {
	if p.lex.peek().text != text {
		return false
	}
	p.next()
	return true
}

// number takes a number up to limit.
func (p *ptxParser) number(limit int) int {
	t := p.next()
	n, err := strconv.ParseUint(strings.TrimRight(t.text, "U"), 0, 32)
	if err != nil || n > uint64(limit) {
		p.near(t)
	}
	return int(n)
}

func (p *ptxParser) module() {
	if t := p.lex.peek(); t.text != ".version" {
		p.fail(t.line, "Missing .version directive at start of file")
	}
	p.version()
	for !p.lex.peek().end() {
		switch t := p.next(); {
		case t.text == ".target":
			p.target()
		case t.text == ".entry":
			p.entry()
		case t.text == ".func":
			p.function()
		case t.text == ".file" || t.text == ".loc":
			p.line(t)
		case t.text == ".section":
			p.next()
			p.want("{")
			p.braces()
		case t.text == ".address_size":
			p.number(64)
		case t.text == ".visible" || t.text == ".extern" || t.text == ".weak" || t.text == ".common":
		case t.text[0] == '.':
			p.statement(t)
		default:
			p.near(t)
		}
	}
}

func (p *ptxParser) version() {
	p.next()
	t := p.next()
	major, minor, _ := strings.Cut(t.text, ".")
	x, err := strconv.ParseUint(major, 10, 8)
	y, err2 := strconv.ParseUint(minor, 10, 8)
	if err != nil || err2 != nil || x == 0 || y > 9 {
		p.near(t)
	}
	p.mod.version = int(10*x + y)
	if p.mod.version > p.newest {
		panic(&ptxError{t.line, fmt.Sprintf("Unsupported .version %s; current version is '%d.%d'", t.text, p.newest/10, p.newest%10),
			driver.ErrorUnsupportedPTXVersion})
	}
}

func (p *ptxParser) target() {
	for {
		t := p.next()
		if sm, ok := strings.CutPrefix(t.text, "sm_"); ok {
			n, err := strconv.ParseUint(strings.TrimRight(sm, "af"), 10, 16)
			if err != nil || n > deviceTarget {
				p.fail(t.line, "Unsupported .target '%s'", t.text)
			}
			p.mod.target = int(n)
		}
		if !p.accept(",") {
			return
		}
	}
}

// entry reads a kernel's declaration and its body.
func (p *ptxParser) entry() {
	name := p.next()
	if !name.identifier() {
		p.near(name)
	}
	if p.mod.entries[name.text] != nil {
		p.fail(name.line, "Duplicate definition of function '%s'", name.text)
	}
	e := &entry{maxThreads: maxThreads}
	if p.accept("(") && !p.accept(")") {
		for {
			p.param(e)
			if p.accept(")") {
				break
			}
			p.want(",")
		}
	}
	for {
		switch t := p.next(); t.text {
		case ";": // the body comes later, or in another module
			return
		case "{":
			p.body(e)
			p.mod.entries[name.text] = e
			return
		case ".maxntid", ".reqntid":
			n := p.number(maxThreads)
			for p.accept(",") {
				n *= p.number(maxThreads)
			}
			e.maxThreads = min(max(n, 1), maxThreads)
		default: // directives that only matter to the compiler, and their numbers
		}
	}
}

// param reads ".param .type name", with an alignment and a length perhaps.
func (p *ptxParser) param(e *entry) {
	p.want(".param")
	v := p.variable()
	offset := (e.size + v.align - 1) / v.align * v.align
	if v.size == 0 || offset+v.size > maxParamBytes {
		p.fail(v.line, "Formal parameter space overflowed (%d bytes max)", maxParamBytes)
	}
	e.params = append(e.params, param{offset, v.size})
	e.size = offset + v.size
}

// body reads statements up to the closing brace, and adds up the shared memory
// that they declare.
func (p *ptxParser) body(e *entry) {
	for depth := 1; depth > 0; {
		switch t := p.next(); {
		case t.text == "{":
			depth++
		case t.text == "}":
			depth--
		case t.text == ".loc" || t.text == ".file":
			p.line(t)
		case t.text == ".shared":
			v := p.variable()
			e.shared = (e.shared+v.align-1)/v.align*v.align + v.size
			if e.shared > maxStaticBytes {
				p.fail(v.line, "Entry function uses too much shared data (%#x bytes, %#x max)", e.shared, maxStaticBytes)
			}
			p.want(";")
		case t.identifier() && p.accept(":"): // a label
		case t.identifier() || t.text[0] == '.' || t.text == "@" || t.opcode():
			p.statement(t)
		default:
			p.near(t)
		}
	}
}

// statement skips one up to its semicolon. Vectors and initial values in it
// have braces.
func (p *ptxParser) statement(t ptxToken) {
	for depth := 0; t.text != ";" || depth > 0; t = p.next() {
		switch t.text {
		case "{":
			depth++
		case "}":
			if depth--; depth < 0 {
				p.near(t)
			}
		}
	}
}

// function skips a function that kernels call.
func (p *ptxParser) function() {
	for {
		switch p.next().text {
		case ";":
			return
		case "{":
			p.body(&entry{})
			return
		}
	}
}

// line skips what is left of the line that t is in.
func (p *ptxParser) line(t ptxToken) {
	for n := p.lex.peek(); n.line == t.line && !n.end(); n = p.lex.peek() {
		p.next()
	}
}

// braces skips to the end of what a brace has opened.
func (p *ptxParser) braces() {
	for depth := 1; depth > 0; {
		switch p.next().text {
		case "{":
			depth++
		case "}":
			depth--
		}
	}
}
