package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// chartRows are the rows that the chart shows, as far as they were measured.
var chartRows = []string{"record", "query", "wait", "wait-stream", "stream-query", "elapsed", "round-trip", "launch", "copy-4", "graph"}

// chartWays are the bars of each row with their colours on light and on dark ground.
var chartWays = []struct{ name, light, dark string }{
	{"C", "#6e7781", "#8b949e"},
	{"purecuda", "#0550ae", "#4493f8"},
	{"cgo", "#b35900", "#f0883e"},
	{"SyscallN", "#a5c8f0", "#2b5486"},
	{"cuda.core", "#4d8f00", "#7ee046"},
	{"CuPy", "#8250df", "#bc8cff"},
	{"PyTorch", "#cf222e", "#ff7b72"},
}

// Sizes of the chart, in pixels.
const (
	chartWidth  = 860
	chartLeft   = 20
	chartRight  = 60 // room for the value of the longest bar
	chartTop    = 112
	chartBar    = 11
	chartStep   = 13 // from a bar to the next
	chartHead   = 22 // above the bars of a row
	chartBottom = 36
)

// chart returns the time of some calls as bars: a picture in SVG that follows whether
// the reader's screen is light or dark.
func chart(r *results) string {
	type bar struct {
		way int
		ns  float64
	}
	var groups [][]bar
	var titles []string
	shortest, longest := math.Inf(1), 0.0
	for _, id := range chartRows {
		var bars []bar
		for i, way := range chartWays {
			if ns, ok := r.here(id, way.name, 1); ok && ns > 0 {
				bars = append(bars, bar{i, ns})
				shortest, longest = min(shortest, ns), max(longest, ns)
			}
		}
		if bars != nil {
			groups, titles = append(groups, bars), append(titles, strings.ReplaceAll(rowTitle(id), "`", ""))
		}
	}
	if groups == nil {
		shortest, longest = 10, 100
	}
	low, ticks := chartAxis(shortest, longest)
	x := func(ns float64) float64 {
		return chartLeft + (chartWidth-chartLeft-chartRight)*math.Log(ns/low)/math.Log(longest/low)
	}

	var body strings.Builder
	y := chartTop
	for i, bars := range groups {
		y += chartHead
		fmt.Fprintf(&body, "<text class=\"call\" x=\"%d\" y=\"%d\">%s</text>\n", chartLeft, y-6, html.EscapeString(titles[i]))
		for _, bar := range bars {
			end := x(bar.ns)
			fmt.Fprintf(&body, "<rect class=\"w%d\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>\n",
				bar.way, chartLeft, y, end-chartLeft, chartBar)
			fmt.Fprintf(&body, "<text class=\"ns\" x=\"%.1f\" y=\"%d\">%s</text>\n", end+4, y+chartBar-2, number(bar.ns))
			y += chartStep
		}
	}

	var b strings.Builder
	height := y + chartBottom
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">\n",
		chartWidth, height, chartWidth, height)
	b.WriteString(chartStyle())
	fmt.Fprintf(&b, "<rect class=\"ground\" width=\"%d\" height=\"%d\"/>\n", chartWidth, height)
	fmt.Fprintf(&b, "<text class=\"title\" x=\"%d\" y=\"30\">What a call costs on one thread, in nanoseconds</text>\n", chartLeft)
	fmt.Fprintf(&b, "<text class=\"small\" x=\"%d\" y=\"50\">%s</text>\n", chartLeft, html.EscapeString(fmt.Sprintf(
		"%s, driver %s, %s; medians; the axis is logarithmic, less is better", r.Machine.Device, r.Machine.Driver, r.Date)))
	left := chartLeft
	for i, way := range chartWays {
		fmt.Fprintf(&b, "<rect class=\"w%d\" x=\"%d\" y=\"66\" width=\"12\" height=\"12\"/>", i, left)
		fmt.Fprintf(&b, "<text class=\"legend\" x=\"%d\" y=\"76\">%s</text>\n", left+17, way.name)
		left += 44 + 8*len(way.name)
	}
	for _, tick := range ticks {
		at := x(tick)
		fmt.Fprintf(&b, "<path class=\"grid\" d=\"M%.1f %dV%d\"/>", at, chartTop, y+6)
		for _, y := range []int{chartTop - 6, y + 20} {
			fmt.Fprintf(&b, "<text class=\"tick\" x=\"%.1f\" y=\"%d\">%s</text>", at, y, number(tick))
		}
		b.WriteString("\n")
	}
	b.WriteString(body.String())
	b.WriteString("</svg>\n")
	return b.String()
}

// chartAxis returns where the axis begins, clearly below the shortest time so that
// its bar can be seen, and the values from there to the longest that get a line.
func chartAxis(shortest, longest float64) (low float64, ticks []float64) {
	for decade := math.Pow(10, math.Floor(math.Log10(shortest))-1); decade <= longest; decade *= 10 {
		for _, step := range []float64{1, 2, 5} {
			switch tick := math.Round(step*decade*1000) / 1000; {
			case tick <= shortest*0.8:
				low, ticks = tick, []float64{tick}
			case tick <= longest:
				ticks = append(ticks, tick)
			}
		}
	}
	return low, ticks
}

func chartStyle() string {
	var b strings.Builder
	colours := func(ground, text, dim, grid string) {
		fmt.Fprintf(&b, ".ground{fill:%s}text{stroke:%s;fill:%s}.small,.tick,.ns{fill:%s}.grid{stroke:%s}\n", ground, ground, text, dim, grid)
	}
	b.WriteString("<style>\ntext{paint-order:stroke;stroke-width:4px;font:12px system-ui,-apple-system,\"Segoe UI\",\"DejaVu Sans\",sans-serif}\n")
	b.WriteString("text.title{font-size:17px;font-weight:600}text.ns{font-size:10px}text.tick{font-size:11px;text-anchor:middle}\n")
	b.WriteString("text.call{font-family:ui-monospace,Menlo,Consolas,\"DejaVu Sans Mono\",monospace}\n")
	colours("#ffffff", "#1f2328", "#59636e", "#d1d9e0")
	for i, way := range chartWays {
		fmt.Fprintf(&b, ".w%d{fill:%s}", i, way.light)
	}
	b.WriteString("\n@media(prefers-color-scheme:dark){\n")
	colours("#0d1117", "#e6edf3", "#9198a1", "#2a313c")
	for i, way := range chartWays {
		fmt.Fprintf(&b, ".w%d{fill:%s}", i, way.dark)
	}
	b.WriteString("\n}\n</style>\n")
	return b.String()
}
