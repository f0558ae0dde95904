package bench

import "slices"

// Dist is a distribution of measured values.
type Dist struct {
	P10    float64 `json:"p10"`
	Median float64 `json:"median"`
	P90    float64 `json:"p90"`
}

// NewDist returns the distribution of values, which it sorts; nil if there are none.
func NewDist(values []float64) *Dist {
	if len(values) == 0 {
		return nil
	}
	slices.Sort(values)
	return &Dist{P10: quantile(values, 0.1), Median: quantile(values, 0.5), P90: quantile(values, 0.9)}
}

// quantile interpolates between the two nearest of the sorted values.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
