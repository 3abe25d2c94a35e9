package queue

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"holdfast/internal/batch"
)

// ErrMessage: a message is not one that this program understands. It is never
// thrown away: a newer program may understand it, and if none does it ends in
// the dead-letter queue.
var ErrMessage = errors.New("message not understood")

// Decode reads a message's body as it was received (receives: how often, at
// least 1). A body of a higher version, with a member that its version doesn't
// have, with one twice or without what names the part is ErrMessage. The error
// holds nothing of the body, which has a capability in it.
func Decode(body, receipt string, receives int) (batch.Delivery, error) {
	var version struct {
		V int `json:"v"`
	}
	if err := json.Unmarshal([]byte(body), &version); err != nil {
		return batch.Delivery{}, fmt.Errorf("%w: no JSON object with a version", ErrMessage)
	}
	if version.V < 1 || version.V > batch.FormatVersion {
		return batch.Delivery{}, fmt.Errorf("%w: it has v=%d, this program reads 1 to %d", ErrMessage, version.V, batch.FormatVersion)
	}
	// A pointer tells part 0 from no part.
	var m struct {
		V         int    `json:"v"`
		Tenant    string `json:"tenant"`
		Batch     string `json:"batch"`
		Part      *int   `json:"part"`
		TaskToken string `json:"task_token"`
	}
	if err := json.Unmarshal([]byte(body), &m, json.RejectUnknownMembers(true)); err != nil {
		return batch.Delivery{}, fmt.Errorf("%w: a member is unknown or of the wrong type", ErrMessage)
	}
	if m.Tenant == "" || m.Batch == "" || m.Part == nil || *m.Part < 0 {
		return batch.Delivery{}, fmt.Errorf("%w: it names no part", ErrMessage)
	}
	return batch.Delivery{
		Message: batch.Message{V: m.V, Tenant: m.Tenant, Batch: m.Batch, Part: *m.Part, TaskToken: m.TaskToken},
		Receipt: receipt, Receives: max(receives, 1),
	}, nil
}
