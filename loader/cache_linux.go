//go:build (amd64 || arm64) && !nocuda

package loader

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
)

// cacheFile is where the system's loader keeps the names of the libraries in
// the directories that the machine's settings list.
var cacheFile = "/etc/ld.so.cache"

// cached returns the files that the system's loader knows by its cache as name.
func cached(name string) []string {
	if _, err := regularFile(cacheFile); err != nil {
		return nil
	}
	data, err := os.ReadFile(cacheFile)
	if err != nil {
		return nil
	}
	return parseCache(data, name)
}

const (
	cacheMagic  = "glibc-ld.so.cache1.1"
	cacheHeader = 48 // the magic, the numbers of entries and of text bytes, and more
	cacheEntry  = 24 // flags, the offsets of name and path, and more
)

// parseCache finds name in a cache of the format that glibc writes since version
// 2.2, alone or after one of the older format. Files for other machines are in
// it too. It trusts no number; from what it cannot read it takes nothing.
func parseCache(data []byte, name string) (files []string) {
	begin := bytes.Index(data, []byte(cacheMagic))
	if begin < 0 || len(data)-begin < cacheHeader {
		return nil
	}
	data = data[begin:] // offsets count from here
	key := append([]byte(name), 0)
	entries := data[cacheHeader:]
	for n := binary.NativeEndian.Uint32(data[len(cacheMagic):]); n > 0 && len(entries) >= cacheEntry; n-- {
		nameAt := uint64(binary.NativeEndian.Uint32(entries[4:]))
		pathAt := uint64(binary.NativeEndian.Uint32(entries[8:]))
		entries = entries[cacheEntry:]
		if max(nameAt, pathAt) >= uint64(len(data)) || !bytes.HasPrefix(data[nameAt:], key) {
			continue
		}
		path, _, ended := bytes.Cut(data[pathAt:], []byte{0})
		if ended && filepath.IsAbs(string(path)) {
			files = append(files, string(path))
		}
	}
	return files
}
