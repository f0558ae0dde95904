package ipc_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
	"github.com/purecuda/cuda/ipc"
)

// resum writes the right checksum into a token's binary form.
func resum(b []byte) []byte {
	sum := sha256.Sum256(b[:len(b)-16])
	copy(b[len(b)-16:], sum[:16])
	return b
}

// fuzzToken fuzzes one form. What is read must be the same through all forms, and
// what is not must leave the token as it was. Altered bytes as such only ever fail by
// the checksum, so binary ones are tried with the right one too.
func fuzzToken(f *testing.F, form string, also func([]byte) []byte) {
	for _, kind := range bothKinds {
		f.Add(written(f, form, someToken(kind)))
		f.Add(written(f, form, ipc.Token{Kind: kind}))
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, also(bytes.Clone(b))} {
			before := someToken(ipc.EventToken)
			got := before
			if err := tokenForms[form].read(&got, b); err != nil {
				require.ErrorIs(t, err, cuda.ErrInvalid)
				require.Equal(t, before, got)
				continue
			}
			if form == "JSON" && string(bytes.TrimSpace(b)) == "null" {
				continue
			}
			for other := range tokenForms {
				sent(t, other, got)
			}
			switch form {
			case "binary":
				require.Equal(t, b, written(t, form, got))
			case "text":
				require.Equal(t, withoutSpace(b), written(t, form, got))
			}
		}
	})
}

// withoutSpace is text without white space around it, and without the line breaks
// that base64 may have anywhere.
func withoutSpace(b []byte) []byte {
	return bytes.ReplaceAll(bytes.ReplaceAll(bytes.TrimSpace(b), []byte("\n"), nil), []byte("\r"), nil)
}

func FuzzTokenBinary(f *testing.F) {
	fuzzToken(f, "binary", func(b []byte) []byte {
		if len(b) < 16 {
			return b
		}
		return resum(b)
	})
}

func FuzzTokenText(f *testing.F) {
	fuzzToken(f, "text", func(b []byte) []byte {
		if len(b) < 16 {
			return b
		}
		return append([]byte("cuda-token:"), base64.RawURLEncoding.EncodeToString(resum(b))...)
	})
}

func FuzzTokenJSON(f *testing.F) {
	fuzzToken(f, "JSON", func(b []byte) []byte {
		var token struct { // as much of it as can be read, with the right checksum
			Kind     string
			Offset   uint64
			Size     uint64
			Exporter struct {
				PID              int
				Start, Namespace uint64
			}
		}
		if json.Unmarshal(b, &token) != nil {
			return b
		}
		made := ipc.Token{Kind: ipc.EventToken, Offset: token.Offset, Size: token.Size}
		if token.Kind == "memory" {
			made.Kind = ipc.MemoryToken
		}
		made.Process = driver.Process{PID: token.Exporter.PID, Start: token.Exporter.Start, Namespace: token.Exporter.Namespace}
		b, err := made.MarshalJSON()
		if err != nil {
			panic(err)
		}
		return b
	})
}

// Tokens that were altered, with and without the right checksum, open nothing.
func TestAlteredTokensOpenNothing(t *testing.T) {
	n := 25_000
	if testing.Short() {
		n = 5000
	}
	p := newPeers(t, cudatest.Config{})
	const extent = 64
	buf, e := testgpu.Alloc[byte](t, p.There.Device(), extent), p.event(t)
	part, err := buf.Range(16, 32)
	require.NoError(t, err)
	memory, event := exported(t, part), exported(t, e)
	before, drv := p.Here.Driver.Stats(), p.Here.Driver
	rnd := rand.New(rand.NewPCG(1, 2))
	opened := 0
	for i := range n {
		of := []ipc.Token{memory, event}[i%2]
		right, err := of.MarshalBinary()
		require.NoError(t, err)
		b := bytes.Clone(right)
		mutate(rnd, b, i)
		if i%4 < 2 {
			resum(b)
		}
		text := append([]byte("cuda-token:"), base64.RawURLEncoding.EncodeToString(b)...)
		var got, again ipc.Token
		if err := got.UnmarshalBinary(b); err != nil {
			require.ErrorIs(t, err, cuda.ErrInvalid)
			require.ErrorIs(t, again.UnmarshalText(text), cuda.ErrInvalid)
			continue
		}
		require.NoError(t, again.UnmarshalText(text))
		require.Equal(t, got, again)
		got = sent(t, "JSON", got)

		// Within the allocation a token may speak of any part, and of an event both numbers mean nothing.
		offset, size := numbersOf(b)
		same := got
		same.Offset, same.Size = of.Offset, of.Size
		harmless := same == of && (of.Kind == ipc.EventToken || size > 0 && offset <= extent && size <= extent-offset)
		var closer interface{ Close() error }
		if got.Kind == ipc.EventToken {
			closer, err = ipc.ImportEvent(drv, got, nil)
		} else {
			closer, err = ipc.ImportBuffer[byte](drv, got, nil)
		}
		if harmless {
			require.NoError(t, err, "%+v", got)
			require.NoError(t, closer.Close())
			opened++
			continue
		}
		require.Error(t, err, "%+v", got)
		var failed *cuda.Error
		require.ErrorAs(t, err, &failed)
		require.NotEmpty(t, failed.Detail, "%v", err)
	}
	t.Logf("%d of %d were harmless", opened, n)
	require.NotZero(t, opened)
	require.Equal(t, before, drv.Stats())
	p.ledger.balanced(t)
	require.Equal(t, 0, p.ledger.watches())
}

// mutate alters a token in one of several ways.
func mutate(rnd *rand.Rand, b []byte, i int) {
	field := func(at, n int) {
		for j := range n {
			b[at+j] = byte(rnd.Uint32())
		}
	}
	switch i / 4 % 8 {
	case 0:
		b[rnd.IntN(len(b))] ^= 1 << rnd.IntN(8)
	case 1: // another offset or size, most of them near
		at := 72 + 8*rnd.IntN(2)
		b[at] = byte(rnd.IntN(80))
	case 2:
		field(8+rnd.IntN(137), 8)
	case 3:
		field(0, len(b))
	case 4: // all but the beginning
		field(6, len(b)-6)
	case 5:
		b[5] ^= 3 // the other kind
	case 6:
		field([]int{72, 80, 104, 112, 136}[rnd.IntN(5)], 8)
	case 7:
		for range 1 + rnd.IntN(4) {
			b[8+rnd.IntN(136)] = byte(rnd.Uint32())
		}
	}
}
