package driver

import "fmt"

// GraphExecUpdateResult says why a graph could not be updated.
type GraphExecUpdateResult int32

const (
	GraphExecUpdateSuccess                   GraphExecUpdateResult = 0
	GraphExecUpdateError                     GraphExecUpdateResult = 1
	GraphExecUpdateTopologyChanged           GraphExecUpdateResult = 2
	GraphExecUpdateNodeTypeChanged           GraphExecUpdateResult = 3
	GraphExecUpdateFunctionChanged           GraphExecUpdateResult = 4
	GraphExecUpdateParametersChanged         GraphExecUpdateResult = 5
	GraphExecUpdateNotSupported              GraphExecUpdateResult = 6
	GraphExecUpdateUnsupportedFunctionChange GraphExecUpdateResult = 7
	GraphExecUpdateAttributesChanged         GraphExecUpdateResult = 8
)

var graphExecUpdateTexts = [...]string{
	"updated", "the update failed", "the topology changed", "the type of a node changed", "the function of a node changed",
	"parameters changed in an unsupported way", "something about a node is not supported",
	"a function changed in an unsupported way", "attributes changed in an unsupported way",
}

// String says in words what changed.
func (r GraphExecUpdateResult) String() string {
	if r < 0 || int(r) >= len(graphExecUpdateTexts) {
		return fmt.Sprintf("GraphExecUpdateResult(%d)", int32(r))
	}
	return graphExecUpdateTexts[r]
}
