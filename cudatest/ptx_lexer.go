package cudatest

import "strings"

// ptxToken is a word or a sign of a PTX text.
type ptxToken struct {
	text string // empty at the end
	line int
	bad  bool // no token of the language begins so
}

func (t ptxToken) end() bool { return t.text == "" }

// identifier reports whether t can name something.
func (t ptxToken) identifier() bool {
	return t.text != "" && wordByte(t.text[0]) && !digit(t.text[0]) && !strings.Contains(t.text, ".")
}

// opcode reports whether t begins with a letter, as instructions with types do.
func (t ptxToken) opcode() bool {
	return t.text != "" && (t.text[0]|0x20 >= 'a' && t.text[0]|0x20 <= 'z')
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// wordByte reports whether c can be in a name; c can also be a byte of a number.
func wordByte(c byte) bool {
	return c == '_' || c == '$' || c == '%' || digit(c) || c|0x20 >= 'a' && c|0x20 <= 'z'
}

// ptxLexer splits a text into tokens. Instructions are one word with their
// types; directives are not: ".param.u64" is two.
type ptxLexer struct {
	text string
	line int
	head ptxToken // the next one, once looked at
	have bool
}

func newPTXLexer(text string) ptxLexer { return ptxLexer{text: text, line: 1} }

// peek returns the next token without taking it.
func (l *ptxLexer) peek() ptxToken {
	if !l.have {
		l.head, l.have = l.scan(), true
	}
	return l.head
}

func (l *ptxLexer) next() ptxToken {
	t := l.peek()
	l.have = false
	return t
}

// cut takes n bytes as a token.
func (l *ptxLexer) cut(n int) ptxToken {
	t := ptxToken{text: l.text[:n], line: l.line}
	l.text = l.text[n:]
	return t
}

func (l *ptxLexer) scan() ptxToken {
	l.space()
	if l.text == "" {
		return ptxToken{line: l.line}
	}
	c, n := l.text[0], 1
	switch {
	case c == '.':
		for n < len(l.text) && wordByte(l.text[n]) {
			n++
		}
	case wordByte(c):
		for n < len(l.text) && (wordByte(l.text[n]) || l.text[n] == '.') {
			n++
		}
	case c == '"':
		end := strings.IndexAny(l.text[1:], "\"\n")
		if end < 0 || l.text[1+end] == '\n' {
			t := l.cut(1)
			t.bad = true
			return t
		}
		n = end + 2
	case !strings.ContainsRune("()[]{}<>,;:+-*/=!@|&^~?", rune(c)):
		t := l.cut(1)
		t.bad = true
		return t
	}
	return l.cut(n)
}

// space skips white space and comments, and counts lines.
func (l *ptxLexer) space() {
	for l.text != "" {
		n := 0
		switch c := l.text[0]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v':
			n = 1
		case strings.HasPrefix(l.text, "//"):
			if n = strings.IndexByte(l.text, '\n'); n < 0 {
				n = len(l.text)
			}
		case strings.HasPrefix(l.text, "/*"):
			if n = strings.Index(l.text[2:], "*/") + 4; n < 4 {
				n = len(l.text)
			}
		default:
			return
		}
		l.line += strings.Count(l.text[:n], "\n")
		l.text = l.text[n:]
	}
}
