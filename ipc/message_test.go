package ipc

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
)

func samples() []message {
	p := identity{PID: 7, Start: 8, Boot: "x", Namespace: 9}
	t := &Token{Kind: MemoryToken, Size: 16}
	return []message{
		{Type: typeHello, Version: version, Process: &p},
		{Type: typeHello, Version: 2},
		{Type: typeOffer, ID: 1, Name: "a name", Token: t},
		{Type: typeWithdraw, ID: 1},
		{Type: typeReleased, ID: 1},
		{Type: typeLeave},
		{Type: typeBye},
		{Type: typeMessage, Name: "channel", Payload: []byte(`{"a":[1,"<>"]}`), File: true},
		{Type: typeMessage, Name: "channel"},
		{Type: typeError, Code: codeProtocol, Text: "why"},
	}
}

func TestMessageRoundTrip(t *testing.T) {
	for _, m := range samples() {
		frame, err := encode(m)
		require.NoError(t, err)
		require.Equal(t, len(frame)-4, int(binary.LittleEndian.Uint32(frame)))
		got, err := decode(frame[4:])
		require.NoError(t, err)
		require.Equal(t, m, got)
	}
}

func TestDecodeErrors(t *testing.T) {
	for body, says := range map[string]string{
		"":                                   "not JSON",
		"{":                                  "not JSON",
		"[]":                                 "not JSON",
		`{"type":"leave"} {}`:                "not JSON",
		`{"type":1}`:                         "not JSON",
		"{}":                                 `unknown type ""`,
		`{"type":"dance"}`:                   `unknown type "dance"`,
		`{"type":"hello","version":1}`:       "of whom",
		`{"type":"offer","id":1,"name":"x"}`: "without a token",
		`{"type":"offer","id":1,"token":{"kind":""}}`:                                         "not JSON",
		`{"type":"message"}`:                                                                  "1 to 255 bytes",
		`{"type":"message","name":"a\u0000"}`:                                                 "printable",
		`{"type":"message","name":"` + strings.Repeat("n", 256) + `"}`:                        "this has 256",
		`{"type":"message","name":"n","payload":"` + strings.Repeat("n", payloadLimit) + `"}`: "payload of 4098 bytes",
		`{"type":"leave","text":"` + strings.Repeat("n", frameLimit) + `"}`:                   "more than 65536",
	} {
		_, err := decode([]byte(body))
		require.ErrorAs(t, err, new(violation), "%.80s", body)
		require.ErrorContains(t, err, says)
	}
	m, err := decode([]byte(`{"type":"error","text":"a\nb\u001b[31m` + strings.Repeat("ä", textLimit) + `"}`))
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(m.Text, "a b [31mää"))
	require.LessOrEqual(t, len(m.Text), textLimit)
}

func TestErrorsMatch(t *testing.T) {
	err := reason{ErrProtocol, "x"}.error("session")
	require.ErrorIs(t, err, ErrProtocol)
	require.ErrorIs(t, err, cuda.ErrPeerGone)
	require.NotErrorIs(t, reason{ErrLeft, ""}.error("session"), cuda.ErrPeerGone)
}

func FuzzMessage(f *testing.F) {
	for _, m := range samples() {
		frame, err := encode(m)
		require.NoError(f, err)
		f.Add(frame[4:])
	}
	f.Add([]byte(`{"type":"message","name":"n","payload":{"type":"message"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := decode(body)
		if err != nil {
			require.ErrorAs(t, err, new(violation))
			return
		}
		frame, err := encode(m)
		require.NoError(t, err)
		again, err := decode(frame[4:])
		require.NoError(t, err)
		frameAgain, err := encode(again)
		require.NoError(t, err)
		require.Equal(t, string(frame), string(frameAgain))
	})
}
