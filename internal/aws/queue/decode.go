package queue

import (
	"fmt"

	"github.com/go-json-experiment/json"

	"holdfast/internal/batch"
)

// Decode reads a message's body as it was received (receives: how often, at
// least 1). A body of a higher version (that one is batch.ErrNewer too), with a
// member twice or without what names the part is batch.ErrMessage. A member that this
// program doesn't know is left alone: a newer one may say more in a message of
// the same version, and has to do without when an older worker sends it again.
// The error holds nothing of the body, which has a capability in it.
func Decode(body, receipt string, receives int) (batch.Delivery, error) {
	var version struct {
		V int `json:"v"`
	}
	if err := json.Unmarshal([]byte(body), &version); err != nil {
		return batch.Delivery{}, fmt.Errorf("%w: no JSON object with a version", batch.ErrMessage)
	}
	if version.V > batch.FormatVersion {
		return batch.Delivery{}, fmt.Errorf("%w: %w: it has v=%d, this program reads 1 to %d", batch.ErrMessage, batch.ErrNewer, version.V, batch.FormatVersion)
	}
	if version.V < 1 {
		return batch.Delivery{}, fmt.Errorf("%w: it has v=%d", batch.ErrMessage, version.V)
	}
	// A pointer tells part 0 from no part.
	var m struct {
		V         int    `json:"v"`
		Tenant    string `json:"tenant"`
		Batch     string `json:"batch"`
		Part      *int   `json:"part"`
		TaskToken string `json:"task_token"`
	}
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		return batch.Delivery{}, fmt.Errorf("%w: a member is there twice or of the wrong type", batch.ErrMessage)
	}
	if m.Tenant == "" || m.Batch == "" || m.Part == nil || *m.Part < 0 {
		return batch.Delivery{}, fmt.Errorf("%w: it names no part", batch.ErrMessage)
	}
	return batch.Delivery{
		Message: batch.Message{V: m.V, Tenant: m.Tenant, Batch: m.Batch, Part: *m.Part, TaskToken: m.TaskToken},
		Receipt: receipt, Receives: max(receives, 1),
	}, nil
}
