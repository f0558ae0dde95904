//go:build linux && (amd64 || arm64) && !nocuda && !purecuda_syscalln

package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fakePeer writes a program that does what script says, with nothing but the shell.
func fakePeer(t *testing.T, script string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), programs["cgo"])
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"+script+"\n"), 0o777))
	return program
}

const document = `{"name": "cgo", "version": "go1.2", "absent": "", "missing": {"graph": "not in it"}, "rows": [
	{"row": "record", "threads": 1, "note": "by hand", "time": [110, 220, 330], "c": [100, 110, 110]},
	{"row": "record", "threads": 16, "note": "", "time": [1000], "c": [500]},
	{"row": "current-stream", "threads": 1, "note": "", "time": [7, 9, 8], "c": []}]}`

func TestPeer(t *testing.T) {
	p, rows := measurePeer(t.Context(), "cgo", fakePeer(t, "echo 'a warning' >&2\necho '"+document+"'"), "request.json")
	require.Equal(t, peer{Name: "cgo", Version: "go1.2", Missing: map[string]string{"graph": "not in it"}}, p)
	require.Len(t, rows, 3)

	// Round by round: 10, 110, 220 above C, and 1.1, 2 and 3 times as long.
	require.Equal(t, "record", rows[0].Row)
	require.Equal(t, "cgo", rows[0].Way)
	require.Equal(t, "by hand", rows[0].Note)
	require.InDelta(t, 220, rows[0].Time.Median, 1e-9)
	require.InDelta(t, 110, rows[0].C.Median, 1e-9)
	require.InDelta(t, 110, rows[0].OverC.Median, 1e-9)
	require.InDelta(t, 2, rows[0].TimesC.Median, 1e-9)
	require.InDelta(t, 1.28, rows[0].TimesC.P10, 1e-9)
	require.InDelta(t, 2.8, rows[0].TimesC.P90, 1e-9)

	require.Equal(t, 16, rows[1].Threads)
	require.InDelta(t, 8, rows[2].Time.Median, 1e-9)
	require.Nil(t, rows[2].C)
	require.Nil(t, rows[2].OverC)
	require.Nil(t, rows[2].TimesC)
}

// A peer that cannot be measured says why, whatever goes wrong.
func TestAbsentPeers(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"says so":       {`echo '{"name": "cgo", "version": "2", "absent": "no such module"}'`, "no such module"},
		"fails":         {"echo 'Traceback' >&2\necho 'Error: no device' >&2\nexit 3", "exit status 3: Error: no device"},
		"fails quietly": {"exit 3", "exit status 3"},
		"crashes":       {"kill -9 $$", "signal: killed"},
		"garbage":       {"echo Hello", `not what was agreed: invalid character 'H' looking for beginning of value: "Hello\n"`},
		"nothing":       {"", "not what was agreed"},
		"no rows":       {"echo '{}'", "it measured nothing"},
		"no times":      {`echo '{"rows": [{"row": "wait", "threads": 2}]}'`, "row wait with 2 threads has 0 times"},
		"fewer of C":    {`echo '{"rows": [{"row": "wait", "threads": 1, "time": [1, 2], "c": [1]}]}'`, "2 times and 1 of C"},
	} {
		t.Run(name, func(t *testing.T) {
			p, rows := measurePeer(t.Context(), "cgo", fakePeer(t, c.script), "request.json")
			require.Equal(t, "cgo", p.Name)
			require.Contains(t, p.Absent, c.want)
			require.Empty(t, rows)
		})
	}
	p, _ := measurePeer(t.Context(), "cgo", filepath.Join(t.TempDir(), "cgo-peer"), "request.json")
	require.Equal(t, "cgo-peer is not in the folder of the peers", p.Absent)
}

// A peer that hangs ends with all that it has started, even if that keeps the output open.
func TestPeerHangs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	left := filepath.Join(t.TempDir(), "left")
	begin := time.Now()
	p, _ := measurePeer(ctx, "cgo", fakePeer(t, "(while :; do echo > "+left+"; done) & while :; do :; done"), "request.json")
	require.Contains(t, p.Absent, "it was not done after")
	require.Less(t, time.Since(begin), 10*time.Second)
	require.Eventually(t, func() bool {
		_ = os.Remove(left)
		time.Sleep(50 * time.Millisecond)
		_, err := os.Stat(left)
		return os.IsNotExist(err)
	}, 10*time.Second, time.Millisecond, "what it has started still runs")
}

// Peers are asked in their order, and each gets the request.
func TestMeasurePeers(t *testing.T) {
	dir := filepath.Dir(fakePeer(t, `read -r line < "$1"; echo "$line" > "${0%/*}/seen"; echo '`+document+`'`))
	r := new(results)
	var progress strings.Builder
	want := request{
		Library: filepath.Join(t.TempDir(), "loop.so"), Libcuda: "/lib/libcuda.so.1", Rounds: 3, Batches: map[string]int{"record": 500},
		Threads: threads, ScaleRounds: 30, ScaleBatches: map[string]int{"record": 20000}, ScaleBatchesC: map[string]int{"record": 20000}, Kernel: "PTX", KernelName: "purecuda_empty",
	}
	require.NoError(t, measurePeers(t.Context(), dir, want, r, &progress))
	require.Len(t, r.Peers, len(peers))
	for i, name := range peers {
		require.Equal(t, name, r.Peers[i].Name)
		require.Contains(t, programs, name)
		require.Equal(t, name != "cgo", r.Peers[i].Absent != "", "%s: %s", name, r.Peers[i].Absent)
		require.Contains(t, progress.String(), name)
	}
	require.Len(t, r.Rows, 3)
	text, err := os.ReadFile(filepath.Join(dir, "seen"))
	require.NoError(t, err)
	var got request
	require.NoError(t, json.Unmarshal(text, &got))
	require.Equal(t, want, got)
}

// The folder may be a relative one, even the working directory, and Python's threads get
// less to do: they take turns.
func TestPeersInWorkingDirectory(t *testing.T) {
	program := fakePeer(t, "echo '"+document+"'")
	t.Chdir(filepath.Dir(program))
	require.NoError(t, os.WriteFile(programs["CuPy"], nil, 0o666))
	require.NoError(t, os.WriteFile("python3", []byte("#!/bin/sh\nread -r line < \"$2\"; echo \"$line\" > seen\n"), 0o777))
	t.Setenv("PATH", filepath.Dir(program)+string(filepath.ListSeparator)+os.Getenv("PATH"))
	r := new(results)
	want := request{
		Library: filepath.Join(t.TempDir(), "loop.so"), Batches: map[string]int{"record": 500}, ScaleRounds: 30,
		ScaleBatches: map[string]int{"record": 20000}, ScaleBatchesC: map[string]int{"record": 20000},
	}
	require.NoError(t, measurePeers(t.Context(), ".", want, r, io.Discard))
	require.Equal(t, "cgo", r.Peers[4].Name)
	require.Empty(t, r.Peers[4].Absent)
	text, err := os.ReadFile("seen")
	require.NoError(t, err)
	var got request
	require.NoError(t, json.Unmarshal(text, &got))
	want.ScaleRounds, want.ScaleBatches = scaleRounds, map[string]int{"record": 2000}
	require.Equal(t, want, got)
}
