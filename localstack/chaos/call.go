package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

// step is what a process's call to AWS is in the protocol's terms, as far as
// somebody wants to stop it there.
type step int

const (
	other      step = iota
	arrival         // a message's visibility is set (step 1, and later with each heartbeat)
	claim           // C5, or C6 from somebody who lapsed
	read            // a part's lines are asked for: no line was sent before it
	suspect         // C7s
	checkpoint      // C8: its chunk is written already
	report          // the workflow is told: the part is over already

	// Of those who start batches.
	reserve // C1 of the bridge, or C2 from a claim that turned stale
	create  // the batch is recorded
	launch  // its execution is started
)

// starting reports whether it is a step of starting a batch, not of working on one.
func (s step) starting() bool { return s >= reserve }

// call is one of a process's calls to AWS.
type call struct {
	process
	step    step
	part    batch.PartKey // of a write to a part; else zero
	tokens  []lease.Token // that the call names
	receipt string        // of an arrival
	tenant  string        // whose batch is started
}

// bodied reports whether step and tokens are told by the body, which is small then.
func bodied(h http.Header) bool {
	switch h.Get("X-Amz-Target") {
	case "DynamoDB_20120810.UpdateItem", "DynamoDB_20120810.PutItem", "AmazonSQS.ChangeMessageVisibility", "AWSStepFunctions.StartExecution":
		return true
	}
	return false
}

// callOf says what a request is. Its body is nil unless it is bodied. The steps
// are told by the attributes that a write names (internal/aws/dynamo,
// claim_conditions.go): nothing in the code under test says where it is.
func callOf(method, path string, h http.Header, body []byte) (c call) {
	target := h.Get("X-Amz-Target")
	switch {
	case target == "AWSStepFunctions.SendTaskSuccess":
		c.step = report
	case target == "AmazonSQS.ChangeMessageVisibility":
		var in struct{ ReceiptHandle string }
		if json.Unmarshal(body, &in) == nil {
			c.step, c.receipt = arrival, in.ReceiptHandle
		}
	case target == "DynamoDB_20120810.UpdateItem":
		c.update(body)
	case target == "DynamoDB_20120810.PutItem":
		c.put(body)
	case target == "AWSStepFunctions.StartExecution":
		c.execution(body)
	case target == "" && method == http.MethodGet && strings.Contains(path, "/files/"):
		c.step = read
	}
	return c
}

type value struct{ S string }

// key is an item's.
type key struct{ PK, SK value }

// put reads a write of a whole item: a claim of the bridge, or a batch.
func (c *call) put(body []byte) {
	var in struct{ Item key }
	if json.Unmarshal(body, &in) != nil {
		return
	}
	if tenant, id, ok := batchOf(in.Item); ok && id != "" && in.Item.SK.S == "META" {
		c.step, c.tenant = create, tenant
		return
	}
	c.reservation(in.Item, true)
}

// reservation reads a write to a row of the bridge. Only a claim writes whole ones,
// and only a steal says when it claims.
func (c *call) reservation(k key, claims bool) {
	tenant, isRow := strings.CutPrefix(k.PK.S, "BR#")
	if end := strings.LastIndexByte(tenant, '#'); isRow && claims && end > 0 {
		c.step, c.tenant = reserve, tenant[:end]
	}
}

// execution reads the start of one, the whole kind.
func (c *call) execution(body []byte) {
	var in struct{ Input string }
	var of struct {
		Tenant string
		Finish bool
	}
	if json.Unmarshal(body, &in) == nil && json.Unmarshal([]byte(in.Input), &of) == nil && !of.Finish {
		c.step, c.tenant = launch, of.Tenant
	}
}

// batchOf is whose item of which batch a key names.
func batchOf(k key) (tenant, id string, ok bool) {
	return strings.Cut(strings.TrimPrefix(k.PK.S, "T#"), "#B#")
}

// update reads a write to a part, or a steal of a claim.
func (c *call) update(body []byte) {
	var in struct {
		Key                       key
		ExpressionAttributeNames  map[string]string
		ExpressionAttributeValues map[string]json.RawMessage
	}
	if json.Unmarshal(body, &in) != nil {
		return
	}
	names := map[string]bool{}
	for _, name := range in.ExpressionAttributeNames {
		names[name] = true
	}
	c.reservation(in.Key, names["claimed_at"])
	tenant, id, ok := batchOf(in.Key)
	number, isPart := strings.CutPrefix(in.Key.SK.S, "PART#")
	n, err := strconv.Atoi(number)
	if !ok || !isPart || err != nil {
		return
	}
	c.part = batch.PartKey{Tenant: tenant, Batch: id, N: n}
	for _, raw := range in.ExpressionAttributeValues {
		var v value
		if json.Unmarshal(raw, &v) == nil && isToken(v.S) {
			c.tokens = append(c.tokens, lease.Token(v.S))
		}
	}
	switch {
	case names["task_token"]:
		c.step = claim
	case names["chunks"]:
		c.step = checkpoint
	case names["suspect"] && names["lease_until"] && names["processed_lines"]:
		c.step = suspect
	}
}

// isToken reports whether s looks like [lease.NewToken]'s.
func isToken(s string) bool {
	return len(s) == len(lease.NewToken()) && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}
