package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// elements parses a picture and returns its rectangles and its texts.
func elements(t *testing.T, svg string) (rects, texts []map[string]string) {
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return rects, texts
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			attributes := map[string]string{}
			for _, a := range token.Attr {
				attributes[a.Name.Local] = a.Value
			}
			switch token.Name.Local {
			case "rect":
				rects = append(rects, attributes)
			case "text":
				texts = append(texts, attributes)
			}
		case xml.CharData:
			if len(texts) > 0 && texts[len(texts)-1][""] == "" {
				texts[len(texts)-1][""] = string(token)
			}
		}
	}
}

func float(t *testing.T, text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	return v
}

func TestChart(t *testing.T) {
	r := invented(t)
	r.Machine.Device = `a "<&>" device`
	svg := chart(r)
	rects, texts := elements(t, svg)
	require.Equal(t, "ground", rects[0]["class"])
	width, height := float(t, rects[0]["width"]), float(t, rects[0]["height"])

	var all []string
	for _, text := range texts {
		all = append(all, text[""])
		require.Less(t, float(t, text["y"]), height)
		if text["class"] == "ns" {
			require.LessOrEqual(t, float(t, text["x"])+6.5*float64(len(text[""])), width, "a value is cut off")
		}
	}
	require.Contains(t, strings.Join(all, "\n"), `a "<&>" device, driver invented, 2001-02-03`)
	for _, want := range []string{"e.Record(s)", "e.Record(s), then e.Synchronize()", "purecuda", "150", "6780"} {
		require.Contains(t, all, want)
	}

	bars, bottom := 0, 0.0
	for _, rect := range rects[1:] {
		if rect["height"] != strconv.Itoa(chartBar) {
			continue
		}
		bars++
		require.Positive(t, float(t, rect["width"]))
		require.LessOrEqual(t, float(t, rect["x"])+float(t, rect["width"]), width)
		require.GreaterOrEqual(t, float(t, rect["y"]), bottom, "bars overlap")
		bottom = float(t, rect["y"]) + chartBar
	}
	require.Equal(t, 7*len(chartRows)-1, bars) // cuda.core has no s.Query
	require.Less(t, bottom, height)
	require.Contains(t, svg, "@media(prefers-color-scheme:dark)")
}

func TestEmptyChart(t *testing.T) {
	rects, _ := elements(t, chart(new(results)))
	require.Len(t, rects, 1+len(chartWays))
}

func TestChartAxis(t *testing.T) {
	low, ticks := chartAxis(68, 1300)
	require.InDelta(t, 50, low, 0)
	require.Equal(t, []float64{50, 100, 200, 500, 1000}, ticks)
	low, ticks = chartAxis(3.1, 9)
	require.InDelta(t, 2, low, 0)
	require.Equal(t, []float64{2, 5}, ticks)
	low, ticks = chartAxis(100, 100)
	require.InDelta(t, 50, low, 0)
	require.Equal(t, []float64{50, 100}, ticks)
}
