package e2e

import (
	"testing"
	"time"

	"holdfast/internal/aws/dynamo"
	"holdfast/internal/bridge"
	"holdfast/internal/lease"
	"holdfast/internal/openai"
)

// A create's process was killed between its claim and its batch, and its client is
// gone: the reaper starts it from what the claim holds, once. Who comes back after
// all finds it.
func TestAbandonedClaim(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	in := c.upload(t, "in.jsonl", lines(3, "/v1/chat/completions"))
	table := dynamo.Open(awsConfig(t), env(t, "HOLDFAST_TABLE"))
	key := bridge.Key{Tenant: c.tenant, CorrelationID: "order 9"}
	ago := time.Now().Add(-10 * time.Minute)
	r := bridge.Request{
		Tenant: c.tenant, CorrelationID: key.CorrelationID, RequestID: "req-of-the-dead", Submitter: "somebody@example.com",
		FileID: in.ID, Endpoint: "/v1/chat/completions", Window: "24h", Metadata: map[string]string{"test": t.Name()},
	}
	row := bridge.Row{Key: key, State: bridge.Reserved, Token: lease.NewToken(), Ver: 1, ClaimedAt: ago, Due: ago.Add(3 * time.Minute), Request: r, Hash: r.Hash(), ExpiresAt: ago.Add(bridge.Kept)}
	if err := table.Bridge.Claim(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	reapNow(t)
	id := bridge.BatchID(c.tenant, key.CorrelationID)
	var now bridge.Row
	poll(t, 90*time.Second, func() bool { // another's tick may have it in hand
		var err error
		if now, err = table.Bridge.Row(t.Context(), c.tenant, key.Name()); err != nil {
			t.Fatal(err)
		}
		return now.State == bridge.Confirmed
	}, func() string { return "the claim is still " + string(now.State) })
	if now.Job != id || now.Ver != 3 || now.Token == row.Token {
		t.Errorf("the claim: %+v", now)
	}
	reapNow(t)
	body := createBody(in.ID, t.Name())
	if got := c.created(t, body, idempotencyKey(key.CorrelationID)); got != id {
		t.Errorf("who comes back gets %s, not %s", got, id)
	}
	c.finished(t, id, "somebody@example.com", 3)
	c.only(t, id)
	if b := get[openai.Batch](t, c, "/v1/batches/"+id); b.Metadata["test"] != t.Name() {
		t.Errorf("%+v", b)
	}
}
