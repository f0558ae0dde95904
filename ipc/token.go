package ipc

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/purecuda/cuda/driver"
)

// Token describes an event or device memory to another process of the machine: what
// it is, on which device, and whose. It is made by [ExportEvent] and [ExportBuffer],
// goes over any wire as bytes, as text or as JSON, and is opened by [ImportEvent] and
// [ImportBuffer], which check all of it first. For a handle of a program that does not use
// this package it can be made by hand.
//
// Whoever has a token of memory can open it, whichever user that is: treat it like a
// password. The checksum finds accidents, and not forgery.
type Token struct {
	Kind    TokenKind
	Handle  [64]byte       // a [driver.IPCEventHandle] or a [driver.IPCMemHandle]
	Offset  uint64         // of memory: where it begins in the allocation, in bytes
	Size    uint64         // of memory: its bytes
	Device  driver.UUID    // the device that it is on
	Process driver.Process // the exporter
}

// TokenKind says what a [Token] describes.
type TokenKind uint8

const (
	EventToken  TokenKind = 1
	MemoryToken TokenKind = 2
)

func (k TokenKind) known() bool { return k == EventToken || k == MemoryToken }

// String returns "event" or "memory".
func (k TokenKind) String() string {
	switch k {
	case EventToken:
		return "event"
	case MemoryToken:
		return "memory"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// The binary form: a mark, the version, the kind, two zeros, the fields in their
// order, numbers in little-endian order, and the beginning of the SHA-256 of all
// that.
const (
	tokenMark    = "GPUT"
	tokenVersion = 1
	tokenSum     = 16
	tokenSize    = 8 + 64 + 8 + 8 + 16 + 8 + 8 + 16 + 8 + tokenSum
	tokenPrefix  = "cuda-token:" // of the text form
)

// AppendBinary appends the binary form, 160 bytes. That of a token which is neither of
// an event nor of memory could not be read, and is refused ([cuda.ErrInvalid]).
func (t Token) AppendBinary(b []byte) ([]byte, error) {
	if !t.Kind.known() {
		return b, invalid("token", "the token is of %v, and not of an event or memory; take one of ExportEvent or ExportBuffer", t.Kind)
	}
	from := len(b)
	b = append(b, tokenMark...)
	b = append(b, tokenVersion, byte(t.Kind), 0, 0)
	b = append(b, t.Handle[:]...)
	b = binary.LittleEndian.AppendUint64(b, t.Offset)
	b = binary.LittleEndian.AppendUint64(b, t.Size)
	b = append(b, t.Device[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(t.Process.PID))
	b = binary.LittleEndian.AppendUint64(b, t.Process.Start)
	b = append(b, t.Process.Boot[:]...)
	b = binary.LittleEndian.AppendUint64(b, t.Process.Namespace)
	sum := sha256.Sum256(b[from:])
	return append(b, sum[:tokenSum]...), nil
}

// MarshalBinary returns the binary form, 160 bytes.
func (t Token) MarshalBinary() ([]byte, error) { return t.AppendBinary(nil) }

// UnmarshalBinary reads the binary form. If that was cut off or altered the error
// says so, and t stays as it was.
func (t *Token) UnmarshalBinary(b []byte) error {
	const op = "token"
	switch {
	case len(b) != tokenSize:
		return invalid(op, "a token has %d bytes, this has %d", tokenSize, len(b))
	case string(b[:4]) != tokenMark:
		return invalid(op, "these bytes are no token")
	case b[4] != tokenVersion:
		return invalid(op, "the token is of version %d, this library reads version %d", b[4], tokenVersion)
	}
	body, sum := b[:tokenSize-tokenSum], sha256.Sum256(b[:tokenSize-tokenSum])
	if !bytes.Equal(sum[:tokenSum], b[tokenSize-tokenSum:]) {
		return invalid(op, "the token was altered on its way: its checksum is wrong")
	}
	read := Token{Kind: TokenKind(body[5])}
	if !read.Kind.known() || body[6] != 0 || body[7] != 0 {
		return invalid(op, "the token is neither of an event nor of memory")
	}
	next := func(n int) []byte { part := body[:n]; body = body[n:]; return part }
	number := func() uint64 { return binary.LittleEndian.Uint64(next(8)) }
	next(8)
	copy(read.Handle[:], next(64))
	read.Offset, read.Size = number(), number()
	copy(read.Device[:], next(16))
	read.Process.PID = int(number())
	read.Process.Start = number()
	copy(read.Process.Boot[:], next(16))
	read.Process.Namespace = number()
	*t = read
	return nil
}

// MarshalText returns the binary form as text of 225 letters, digits and a few
// signs, without spaces.
func (t Token) MarshalText() ([]byte, error) {
	b, err := t.AppendBinary(nil)
	if err != nil {
		return nil, err
	}
	return base64.RawURLEncoding.AppendEncode([]byte(tokenPrefix), b), nil
}

// UnmarshalText reads what MarshalText wrote, without regard to white space around
// it. If that was cut off or altered the error says so, and t stays as it was.
func (t *Token) UnmarshalText(text []byte) error {
	const op = "token"
	s, found := strings.CutPrefix(strings.TrimSpace(string(text)), tokenPrefix)
	if !found {
		return invalid(op, "the text of a token begins with %s", tokenPrefix)
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return invalid(op, "the token was altered on its way: %v", err)
	}
	return t.UnmarshalBinary(b)
}

// tokenJSON is the JSON form, meant to be read by other languages. The handle and
// the checksum are hexadecimal; the checksum is that of the binary form.
type tokenJSON struct {
	Version  int           `json:"version"`
	Kind     string        `json:"kind"`
	Handle   string        `json:"handle"`
	Offset   uint64        `json:"offset"`
	Size     uint64        `json:"size"`
	Device   string        `json:"device"`
	Exporter tokenExporter `json:"exporter"`
	Checksum string        `json:"checksum"`
}

type tokenExporter struct {
	PID       int    `json:"pid"`
	Start     uint64 `json:"start"`
	Boot      string `json:"boot"`
	Namespace uint64 `json:"namespace"`
}

// MarshalJSON returns a JSON object with the fields, the handle in hexadecimal, and
// a checksum.
func (t Token) MarshalJSON() ([]byte, error) {
	b, err := t.AppendBinary(nil)
	if err != nil {
		return nil, err
	}
	return json.Marshal(tokenJSON{
		Version: tokenVersion,
		Kind:    t.Kind.String(),
		Handle:  hex.EncodeToString(t.Handle[:]),
		Offset:  t.Offset,
		Size:    t.Size,
		Device:  t.Device.String(),
		Exporter: tokenExporter{
			PID: t.Process.PID, Start: t.Process.Start, Boot: t.Process.Boot.String(), Namespace: t.Process.Namespace,
		},
		Checksum: hex.EncodeToString(b[tokenSize-tokenSum:]),
	})
}

// UnmarshalJSON reads what MarshalJSON wrote. If that was altered the error says so,
// and t stays as it was.
func (t *Token) UnmarshalJSON(data []byte) error {
	const op = "token"
	if string(data) == "null" {
		return nil // as encoding/json has it
	}
	var j tokenJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return invalid(op, "the JSON is not of a token: %v", err)
	}
	if j.Version != tokenVersion {
		return invalid(op, "the token is of version %d, this library reads version %d", j.Version, tokenVersion)
	}
	read := Token{Offset: j.Offset, Size: j.Size, Process: driver.Process{
		PID: j.Exporter.PID, Start: j.Exporter.Start, Namespace: j.Exporter.Namespace,
	}}
	switch j.Kind {
	case "event":
		read.Kind = EventToken
	case "memory":
		read.Kind = MemoryToken
	default:
		return invalid(op, "the token is of kind %q, and not event or memory", j.Kind)
	}
	sum := make([]byte, tokenSum)
	for _, part := range []struct {
		name, text string
		to         []byte
	}{
		{"handle", j.Handle, read.Handle[:]},
		{"device", strings.ReplaceAll(strings.TrimPrefix(j.Device, "GPU-"), "-", ""), read.Device[:]},
		{"boot", strings.ReplaceAll(j.Exporter.Boot, "-", ""), read.Process.Boot[:]},
		{"checksum", j.Checksum, sum},
	} {
		if n, err := hex.Decode(part.to, []byte(part.text[:min(len(part.text), 2*len(part.to))])); err != nil || n != len(part.to) || len(part.text) != 2*n {
			return invalid(op, "the token's %s is not %d bytes in hexadecimal", part.name, len(part.to))
		}
	}
	b, err := read.AppendBinary(nil)
	if err != nil {
		return err
	}
	if !bytes.Equal(sum, b[tokenSize-tokenSum:]) {
		return invalid(op, "the token was altered on its way: its checksum is wrong")
	}
	*t = read
	return nil
}

// String names what the token describes, and the exporter.
func (t Token) String() string {
	return fmt.Sprintf("ipc.Token(%v on %v, process %d)", t.Kind, t.Device, t.Process.PID)
}
