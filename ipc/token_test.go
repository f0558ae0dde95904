package ipc_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/ipc"
)

// someToken is a token in which no two bytes that stand side by side are equal, so
// that fields which are mixed up show.
func someToken(kind ipc.TokenKind) ipc.Token {
	t := ipc.Token{
		Kind: kind, Offset: 0x0102030405060708, Size: 0x1112131415161718,
		Process: driver.Process{PID: 0x21222324, Start: 0x3132333435363738, Namespace: 0x4142434445464748},
	}
	for i := range t.Handle {
		t.Handle[i] = byte(0x80 + i)
	}
	for i := range t.Device {
		t.Device[i], t.Process.Boot[i] = byte(0x50+i), byte(0x60+i)
	}
	return t
}

var bothKinds = []ipc.TokenKind{ipc.EventToken, ipc.MemoryToken}

// tokenForms are the forms in which a token travels.
var tokenForms = map[string]struct {
	write func(ipc.Token) ([]byte, error)
	read  func(*ipc.Token, []byte) error
}{
	"binary": {ipc.Token.MarshalBinary, (*ipc.Token).UnmarshalBinary},
	"text":   {ipc.Token.MarshalText, (*ipc.Token).UnmarshalText},
	"JSON":   {ipc.Token.MarshalJSON, (*ipc.Token).UnmarshalJSON},
}

func written(t testing.TB, form string, token ipc.Token) []byte {
	t.Helper()
	b, err := tokenForms[form].write(token)
	require.NoError(t, err)
	return b
}

// sent is what arrives of a token in a form.
func sent(t testing.TB, form string, token ipc.Token) (got ipc.Token) {
	t.Helper()
	require.NoError(t, tokenForms[form].read(&got, written(t, form, token)))
	require.Equal(t, token, got)
	return got
}

// refused fails the test unless b is no token in a form, and a token that was to be
// read from it stays as it was.
func refused(t testing.TB, form string, b []byte, text string) {
	t.Helper()
	before := someToken(ipc.EventToken)
	got := before
	err := tokenForms[form].read(&got, b)
	require.ErrorIs(t, err, cuda.ErrInvalid, "%q", b)
	require.ErrorContains(t, err, text)
	require.ErrorContains(t, err, "cuda: token: ")
	require.Equal(t, before, got)
}

func TestTokenForms(t *testing.T) {
	for form := range tokenForms {
		for _, kind := range bothKinds {
			sent(t, form, someToken(kind))
			sent(t, form, ipc.Token{Kind: kind})
		}
	}
	token := someToken(ipc.MemoryToken)
	binaryForm := written(t, "binary", token)
	require.Len(t, binaryForm, 160)
	more, err := token.AppendBinary([]byte("before"))
	require.NoError(t, err)
	require.Equal(t, "before"+string(binaryForm), string(more))

	text := string(written(t, "text", token))
	require.Len(t, text, 225)
	require.NotContains(t, strings.Map(func(r rune) rune {
		if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_:", r)) {
			return 'a'
		}
		return ' '
	}, text), " ")
	var got ipc.Token
	require.NoError(t, got.UnmarshalText([]byte(" \t"+text+"\r\n")))
	require.Equal(t, token, got)

	require.Equal(t, "ipc.Token(memory on GPU-50515253-5455-5657-5859-5a5b5c5d5e5f, process 555885348)", token.String())
	require.Equal(t, "event", ipc.EventToken.String())
	require.Equal(t, "kind 7", ipc.TokenKind(7).String())
}

// The bytes themselves: what one version of the library writes another must read.
func TestTokenFormsStayAsTheyAre(t *testing.T) {
	const boot, device, handle = "606162636465666768696a6b6c6d6e6f", "505152535455565758595a5b5c5d5e5f",
		"808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebf"
	body := "47505554" + "01020000" + handle + "0807060504030201" + "1817161514131211" + device +
		"2423222100000000" + "3837363534333231" + boot + "4847464544434241"
	b := written(t, "binary", someToken(ipc.MemoryToken))
	require.Equal(t, body, hex.EncodeToString(b[:144]))
	sum := hex.EncodeToString(b[144:])
	require.Equal(t, "cuda-token:"+base64.RawURLEncoding.EncodeToString(b), string(written(t, "text", someToken(ipc.MemoryToken))))
	require.JSONEq(t, `{
		"version": 1, "kind": "memory", "handle": "`+handle+`", "offset": 72623859790382856, "size": 1230066625199609624,
		"device": "GPU-50515253-5455-5657-5859-5a5b5c5d5e5f",
		"exporter": {"pid": 555885348, "start": 3544952156018063160, "boot": "60616263-6465-6667-6869-6a6b6c6d6e6f", "namespace": 4702394921427289928},
		"checksum": "`+sum+`"}`, string(written(t, "JSON", someToken(ipc.MemoryToken))))
}

// In other structures tokens stand as encoding/json has it.
func TestTokenInJSON(t *testing.T) {
	type offer struct {
		Event  ipc.Token
		Memory *ipc.Token
		None   *ipc.Token
	}
	memory := someToken(ipc.MemoryToken)
	b, err := json.Marshal(offer{someToken(ipc.EventToken), &memory, nil})
	require.NoError(t, err)
	var got offer
	require.NoError(t, json.Unmarshal(b, &got))
	require.Equal(t, offer{someToken(ipc.EventToken), &memory, nil}, got)
	require.NoError(t, got.Event.UnmarshalJSON([]byte("null")))
	require.Equal(t, someToken(ipc.EventToken), got.Event, "null leaves it")
}

func TestAlteredTokens(t *testing.T) {
	for _, kind := range bothKinds {
		b := written(t, "binary", someToken(kind))
		for i := range len(b) * 8 {
			b[i/8] ^= 1 << (i % 8)
			text := "checksum"
			switch {
			case i/8 < 4:
				text = "no token"
			case i/8 == 4:
				text = fmt.Sprintf("of version %d, this library reads version 1", b[4])
			}
			refused(t, "binary", b, text)
			refused(t, "text", []byte("cuda-token:"+base64.RawURLEncoding.EncodeToString(b)), text)
			b[i/8] ^= 1 << (i % 8)
		}
		for n := range b {
			refused(t, "binary", b[:n], fmt.Sprintf("a token has 160 bytes, this has %d", n))
		}
		refused(t, "binary", append(b, 0), "this has 161")

		text := string(written(t, "text", someToken(kind)))
		for n := range text {
			refused(t, "text", []byte(text[:n]), "")
		}
		refused(t, "text", []byte(text[11:]), "begins with cuda-token:")
		refused(t, "text", []byte(text+text), "altered")
		refused(t, "text", []byte(text[:100]+" "+text[100:]), "altered")
		refused(t, "text", []byte(text+"A"), "has 161")
		refused(t, "text", append([]byte(text[:len(text)-1]), text[len(text)-1]+1), "altered") // bits that are left over
		refused(t, "text", []byte(text+"=="), "altered")
	}
}

// A checksum that is right does not make a token of what can be none.
func TestTokensOfNoKind(t *testing.T) {
	for kind := range 256 {
		if kind == 1 || kind == 2 {
			continue
		}
		b := summed(func(b []byte) { b[5] = byte(kind) })
		refused(t, "binary", b, "neither of an event nor of memory")
	}
	reserved := summed(func(b []byte) { b[6] = 1 })
	refused(t, "binary", reserved, "neither of an event nor of memory")
	refused(t, "binary", summed(func(b []byte) { b[4] = 2 }), "version 2")
}

func TestAlteredTokensInJSON(t *testing.T) {
	for _, kind := range bothKinds {
		for name, c := range map[string]struct {
			change func(token, exporter map[string]any)
			text   string
		}{
			"version":         {func(m, _ map[string]any) { m["version"] = 2 }, "version 2, this library reads version 1"},
			"no version":      {func(m, _ map[string]any) { delete(m, "version") }, "version 0"},
			"no kind":         {func(m, _ map[string]any) { delete(m, "kind") }, `kind ""`},
			"kind":            {func(m, _ map[string]any) { m["kind"] = "stream" }, `kind "stream", and not event or memory`},
			"the other kind":  {func(m, _ map[string]any) { m["kind"] = (3 - kind).String() }, "checksum"},
			"handle":          {func(m, _ map[string]any) { m["handle"] = "00" + m["handle"].(string)[2:] }, "checksum"},
			"short handle":    {func(m, _ map[string]any) { m["handle"] = m["handle"].(string)[2:] }, "handle is not 64 bytes in hexadecimal"},
			"long handle":     {func(m, _ map[string]any) { m["handle"] = m["handle"].(string) + "00" }, "handle is not 64 bytes"},
			"odd handle":      {func(m, _ map[string]any) { m["handle"] = m["handle"].(string)[1:] }, "handle is not 64 bytes"},
			"no hexadecimal":  {func(m, _ map[string]any) { m["handle"] = "xy" + m["handle"].(string)[2:] }, "handle is not 64 bytes"},
			"no handle":       {func(m, _ map[string]any) { delete(m, "handle") }, "handle is not 64 bytes"},
			"handle a number": {func(m, _ map[string]any) { m["handle"] = 7 }, "not of a token"},
			"offset":          {func(m, _ map[string]any) { m["offset"] = 7 }, "checksum"},
			"offset below 0":  {func(m, _ map[string]any) { m["offset"] = -1 }, "not of a token"},
			"half an offset":  {func(m, _ map[string]any) { m["offset"] = 0.5 }, "not of a token"},
			"size":            {func(m, _ map[string]any) { m["size"] = 7 }, "checksum"},
			"no size":         {func(m, _ map[string]any) { delete(m, "size") }, "checksum"},
			"device":          {func(m, _ map[string]any) { m["device"] = driver.UUID{1}.String() }, "checksum"},
			"short device":    {func(m, _ map[string]any) { m["device"] = "GPU-0" }, "device is not 16 bytes"},
			"pid":             {func(_, x map[string]any) { x["pid"] = 7 }, "checksum"},
			"start":           {func(_, x map[string]any) { x["start"] = 7 }, "checksum"},
			"boot":            {func(_, x map[string]any) { x["boot"] = driver.Boot{1}.String() }, "checksum"},
			"short boot":      {func(_, x map[string]any) { x["boot"] = "00" }, "boot is not 16 bytes"},
			"namespace":       {func(_, x map[string]any) { x["namespace"] = 7 }, "checksum"},
			"no exporter":     {func(m, _ map[string]any) { delete(m, "exporter") }, "boot is not 16 bytes"},
			"checksum":        {func(m, _ map[string]any) { m["checksum"] = strings.Repeat("0", 32) }, "checksum is wrong"},
			"no checksum":     {func(m, _ map[string]any) { delete(m, "checksum") }, "checksum is not 16 bytes"},
			"a list for all":  {func(m, _ map[string]any) { m["exporter"] = []int{1} }, "not of a token"},
		} {
			var m map[string]any
			d := json.NewDecoder(strings.NewReader(string(written(t, "JSON", someToken(kind)))))
			d.UseNumber()
			require.NoError(t, d.Decode(&m))
			c.change(m, m["exporter"].(map[string]any))
			b, err := json.Marshal(m)
			require.NoError(t, err)
			t.Run(name, func(t *testing.T) { refused(t, "JSON", b, c.text) })
		}
	}
	for _, s := range []string{"", "{}", "[]", "7", `"cuda-token:"`, "{", `{"version":1}`} {
		refused(t, "JSON", []byte(s), "")
	}
	var got ipc.Token
	upper := strings.NewReplacer("a", "A", "b", "B", "c", "C", "d", "D", "e", "E", "f", "F")
	token := someToken(ipc.EventToken)
	s, handle := string(written(t, "JSON", token)), hex.EncodeToString(token.Handle[:])
	require.NoError(t, got.UnmarshalJSON([]byte(strings.Replace(s, handle, upper.Replace(handle), 1))), "other languages may write it so")
	require.Equal(t, token, got)
}

// summed is a token that was changed in its binary form, with the checksum of that.
func summed(change func(b []byte)) []byte {
	b, err := someToken(ipc.EventToken).MarshalBinary()
	if err != nil {
		panic(err)
	}
	change(b)
	return resum(b)
}

// numbersOf returns two fields of a token's binary form.
func numbersOf(b []byte) (offset, size uint64) {
	return binary.LittleEndian.Uint64(b[72:]), binary.LittleEndian.Uint64(b[80:])
}

// What could not be read is not written.
func TestTokenOfNothing(t *testing.T) {
	for _, kind := range []ipc.TokenKind{0, 3, 255} {
		token := someToken(kind)
		for form, f := range tokenForms {
			b, err := f.write(token)
			require.ErrorIs(t, err, cuda.ErrInvalid, form)
			require.ErrorContains(t, err, "cuda: token: ")
			require.Empty(t, b, form)
		}
		b, err := token.AppendBinary([]byte("before"))
		require.ErrorIs(t, err, cuda.ErrInvalid)
		require.Equal(t, "before", string(b))
		_, err = json.Marshal(struct{ T ipc.Token }{token})
		require.ErrorIs(t, err, cuda.ErrInvalid)
	}
}
