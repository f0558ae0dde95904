package ipc

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/purecuda/cuda/driver"
)

// What each end has to bear at most from the other.
const (
	frameLimit   = 64 << 10 // bytes of a message
	nameLimit    = 255      // bytes
	offerLimit   = 1024     // of one end, at a time
	payloadLimit = 4 << 10  // bytes
	textLimit    = 1024     // bytes of an error
)

// version is that of the protocol.
const version = 1

// The types of messages. Each goes over the wire as its length, 4 bytes in
// little-endian order, and a JSON object.
const (
	typeHello    = "hello"    // the first, from either end: version, process
	typeOffer    = "offer"    // id, name, token
	typeWithdraw = "withdraw" // id: the exporter wants it back
	typeReleased = "released" // id: the importer has released what was withdrawn
	typeLeave    = "leave"    // its sender offers and attaches nothing more, and wants all back
	typeBye      = "bye"      // the last: its sender has released everything
	typeMessage  = "message"  // name, payload, file: of a channel
	typeError    = "error"    // code, text: why its sender breaks off
)

// Codes of errors.
const (
	codeRefused     = "refused"
	codeVersion     = "version"
	codeUnreachable = "unreachable"
	codeProtocol    = "protocol"
	codeLeft        = "left" // before there was a session
)

type message struct {
	Type    string          `json:"type"`
	Version int             `json:"version,omitempty"`
	Process *identity       `json:"process,omitempty"`
	ID      uint64          `json:"id,omitempty"`
	Name    string          `json:"name,omitempty"`
	Token   *Token          `json:"token,omitempty"`
	Payload json.RawMessage `json:"payload,omitempty"`
	File    bool            `json:"file,omitempty"`
	Code    string          `json:"code,omitempty"`
	Text    string          `json:"text,omitempty"`
}

// identity is a [driver.Process].
type identity struct {
	PID       int    `json:"pid"`
	Start     uint64 `json:"start"`
	Boot      string `json:"boot"`
	Namespace uint64 `json:"namespace"`
}

func identityOf(p driver.Process) identity {
	return identity{p.PID, p.Start, p.Boot.String(), p.Namespace}
}

// kind names the type with its article.
func (m message) kind() string {
	if m.Type == typeOffer || m.Type == typeError {
		return "an " + m.Type
	}
	return "a " + m.Type
}

// encode returns the frame of a message. The text of an error may be a user's, of any
// length.
func encode(m message) ([]byte, error) {
	m.Text = printable(m.Text)
	var b bytes.Buffer
	b.Write(make([]byte, 4))
	j := json.NewEncoder(&b)
	j.SetEscapeHTML(false)
	if err := j.Encode(m); err != nil {
		return nil, err
	}
	frame := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	binary.LittleEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame, nil
}

// decode reads the body of a frame. All that can be wrong with a message by itself is
// an error.
func decode(body []byte) (message, error) {
	var m message
	if len(body) > frameLimit {
		return m, violated("a message of %d bytes, more than %d", len(body), frameLimit)
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return m, violated("a message that is not JSON as it should be: %.200s", err)
	}
	switch m.Type {
	case typeHello:
		if m.Process == nil && m.Version == version {
			return m, violated("a hello that does not say of whom")
		}
	case typeOffer:
		if m.Token == nil {
			return m, violated("an offer without a token")
		}
		if err := checkName(m.Name); err != nil {
			return m, err
		}
	case typeMessage:
		if len(m.Payload) > payloadLimit {
			return m, violated("a payload of %d bytes, more than %d", len(m.Payload), payloadLimit)
		}
		if err := checkName(m.Name); err != nil {
			return m, err
		}
	case typeError:
		m.Text = printable(m.Text)
	case typeWithdraw, typeReleased, typeLeave, typeBye:
	default:
		return m, violated("a message of unknown type %.40q", m.Type)
	}
	return m, nil
}

// checkName says what is wrong with a name.
func checkName(name string) error {
	if name == "" || len(name) > nameLimit {
		return violated("a name has 1 to %d bytes, this has %d", nameLimit, len(name))
	}
	if !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return violated("a name is of printable characters, %q is not", name)
	}
	return nil
}

// printable makes a text fit for another process's error.
func printable(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), textLimit)], "")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}
