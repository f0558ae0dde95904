//go:build (amd64 || arm64) && !nocuda

package loader

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

// mappedFile returns the file that the kernel mapped at address, which is the
// library's real path however the system's loader came to it. It returns "" if
// it cannot tell.
func mappedFile(address uintptr) string {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if file, ok := mapsLine(lines.Text(), uint64(address)); ok {
			return file
		}
	}
	return ""
}

// mapsLine parses "start-end perms offset device inode   path" and returns the
// path if address lies in the range.
func mapsLine(line string, address uint64) (file string, ok bool) {
	bounds, _, _ := strings.Cut(line, " ")
	low, high, _ := strings.Cut(bounds, "-")
	start, err1 := strconv.ParseUint(low, 16, 64)
	end, err2 := strconv.ParseUint(high, 16, 64)
	if err1 != nil || err2 != nil || address < start || address >= end {
		return "", false
	}
	// The path is the only field that has a slash; it may hold spaces.
	if i := strings.IndexByte(line, '/'); i >= 0 {
		return strings.TrimSuffix(line[i:], " (deleted)"), true
	}
	return "", true
}
