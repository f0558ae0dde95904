package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/purecuda/cuda/internal/bench"
)

// rowTitle returns what tables call a row; its id if there is no such row any more.
func rowTitle(id string) string {
	if row := bench.RowByID(id); row != nil {
		return row.Title
	}
	return "`" + id + "`"
}

// number has one decimal under 20, else none.
func number(v float64) string {
	decimals := 0
	if v > -20 && v < 20 {
		decimals = 1
	}
	return minus(strconv.FormatFloat(v, 'f', decimals, 64))
}

// factor has as many decimals as can matter: 0.95, 1.31, 8.4, 24.
func factor(v float64) string {
	decimals := 2
	if v >= 20 {
		decimals = 0
	} else if v >= 3 {
		decimals = 1
	}
	return minus(strconv.FormatFloat(v, 'f', decimals, 64)) + " ×"
}

// million returns how many million operations threads do in a second, if each takes
// ns from one to the next.
func million(threads int, ns float64) string {
	if ns <= 0 {
		return none
	}
	return fmt.Sprintf("%.2f", float64(threads)*1e3/ns)
}

func minus(s string) string { return strings.Replace(s, "-", "−", 1) }

// inline makes one line of what a program has said, and no HTML.
func inline(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "<", "&lt;")
}
