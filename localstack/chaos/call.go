package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

// step is what a worker's call to AWS is in the protocol's terms, as far as
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
)

// call is one of a worker's calls to AWS.
type call struct {
	pid     int
	step    step
	part    batch.PartKey // of a write to a part; else zero
	tokens  []lease.Token // that the call names
	receipt string        // of an arrival
}

// bodied reports whether step and tokens are told by the body, which is small then.
func bodied(h http.Header) bool {
	switch h.Get("X-Amz-Target") {
	case "DynamoDB_20120810.UpdateItem", "AmazonSQS.ChangeMessageVisibility":
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
	case target == "" && method == http.MethodGet && strings.Contains(path, "/files/"):
		c.step = read
	}
	return c
}

type value struct{ S string }

// update reads a write to a part.
func (c *call) update(body []byte) {
	var in struct {
		Key                       struct{ PK, SK value }
		ExpressionAttributeNames  map[string]string
		ExpressionAttributeValues map[string]json.RawMessage
	}
	if json.Unmarshal(body, &in) != nil {
		return
	}
	tenant, id, ok := strings.Cut(strings.TrimPrefix(in.Key.PK.S, "T#"), "#B#")
	number, isPart := strings.CutPrefix(in.Key.SK.S, "PART#")
	n, err := strconv.Atoi(number)
	if !ok || !isPart || err != nil {
		return
	}
	c.part = batch.PartKey{Tenant: tenant, Batch: id, N: n}
	names := map[string]bool{}
	for _, name := range in.ExpressionAttributeNames {
		names[name] = true
	}
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
