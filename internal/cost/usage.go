package cost

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// UsageVersion is the format of a usage line that this program writes; it reads
// it and every earlier one.
const UsageVersion = 1

// UsageMessage is the msg by which a usage line is known among a function's log.
const UsageMessage = "usage"

// Invocation is one invocation of a function as its log line tells it. It holds
// names of batches and numbers, never a key, a body or a header.
type Invocation struct {
	Message  string `json:"msg"` // UsageMessage
	V        int    `json:"v"`
	Function string `json:"function"` // api, ingest, plan, work, finish, reap
	Memory   int    `json:"mb"`
	Duration int64  `json:"ms"`                // of the handler
	Init     int64  `json:"init_ms,omitempty"` // before the first invocation of a process; billed too
	Slots    int    `json:"k,omitempty"`       // requests in flight that the function was set to
	// Batches are those that something was done for. What was done for none (a
	// message taken from the queue, a key looked up) is in one without a name.
	Batches []Share `json:"batches"`
}

// Share is what an invocation did for one batch.
type Share struct {
	Tenant string `json:"tenant,omitempty"`
	Batch  string `json:"batch,omitempty"`
	// Part is the batch's part of the invocation: its duration, its request, its log,
	// and what was done for no batch. They add up to 1 over the named batches.
	Part     float64          `json:"part,omitempty"`
	Lines    int              `json:"lines,omitempty"` // results committed
	Calls    map[string]Calls `json:"calls,omitempty"` // by service and operation: "S3.PutObject"
	Upstream Upstream         `json:"upstream,omitzero"`
}

// Calls counts the calls of one operation.
type Calls struct {
	Answered int64   `json:"n"`           // tries that got an answer, a refusal included
	Failed   int64   `json:"f,omitempty"` // tries with no answer, or one of 500 and above
	Reads    float64 `json:"r,omitempty"` // units
	Writes   float64 `json:"w,omitempty"` // units
	Sent     int64   `json:"out,omitempty"`
	Received int64   `json:"in,omitempty"` // bytes, as announced
}

// Upstream counts the requests to the model.
type Upstream struct {
	Requests int64 `json:"n"`
	Waited   int64 `json:"ms"` // in sum: K of them wait at once
}

// Plus is the sum of both.
func (c Calls) Plus(o Calls) Calls {
	return Calls{c.Answered + o.Answered, c.Failed + o.Failed, c.Reads + o.Reads, c.Writes + o.Writes, c.Sent + o.Sent, c.Received + o.Received}
}

// ErrLine: a log line that is no usage line of a format that this program reads.
var ErrLine = errors.New("not a usage line")

// ParseLine reads a log line. What a runtime puts before the JSON is skipped.
// ErrLine.
func ParseLine(line string) (Invocation, error) {
	var i Invocation
	at := strings.IndexByte(line, '{')
	if at < 0 {
		return i, ErrLine
	}
	if err := json.Unmarshal([]byte(line[at:]), &i); err != nil {
		return i, fmt.Errorf("%w: %w", ErrLine, err)
	}
	if i.Message != UsageMessage || i.V < 1 || i.V > UsageVersion {
		return i, fmt.Errorf("%w: msg %q, v %d", ErrLine, i.Message, i.V)
	}
	return i, nil
}

// Of is the share of the batch; false if it has none.
func (i Invocation) Of(tenant, batch string) (Share, bool) {
	for _, s := range i.Batches {
		if s.Batch == batch && (s.Tenant == tenant || s.Tenant == "") {
			return s, true
		}
	}
	return Share{}, false
}

// logOverhead is what the platform writes beside a program's own lines: START, END
// and REPORT, and what CloudWatch adds to each event.
const logOverhead = 500

// Usage is what the batch's share of the invocation used; size is the bytes that
// the invocation logged, 0 where they are counted elsewhere.
func (i Invocation) Usage(s Share, size int) Usage {
	u := Usage{}
	compute := OtherCompute
	switch i.Function {
	case "work":
		compute = Compute
		// The poller takes the message that begins the run and deletes it afterwards.
		u.Add(QueueRequests, 2*s.Part)
	case "api":
		u.Add(HTTPRequests, s.Part)
	}
	u.Add(compute, s.Part*GBSeconds(float64(i.Memory), float64(i.Duration+i.Init)))
	u.Add(Invocations, s.Part)
	u.Add(LogBytes, s.Part*float64(size+logOverhead)/gb)
	s.calls(u, 1)
	for _, o := range i.Batches {
		if o.Batch == "" {
			o.calls(u, s.Part)
		}
	}
	return u
}

func (s Share) calls(u Usage, times float64) {
	for _, name := range slices.Sorted(maps.Keys(s.Calls)) {
		c := s.Calls[name]
		u.Add(TableReads, c.Reads*times)
		u.Add(TableWrites, c.Writes*times)
		if k, billed := kindOf(name); billed {
			n := c.Answered
			if k == QueueRequests {
				n += c.Failed // nothing says that those are free
			}
			u.Add(k, float64(n)*times)
		}
	}
}

// kindOf is what a call is billed as by the request; false for what is billed by
// its units (the table) or not at all: deletes of S3, reports to the workflow.
func kindOf(name string) (Kind, bool) {
	service, operation, _ := strings.Cut(name, ".")
	switch service {
	case "SQS":
		return QueueRequests, true
	case "Secrets Manager":
		return SecretCalls, true
	case "S3":
		switch operation {
		case "DeleteObject", "DeleteObjects", "AbortMultipartUpload":
			return "", false
		case "PutObject", "CopyObject", "CreateMultipartUpload", "UploadPart", "UploadPartCopy", "CompleteMultipartUpload",
			"ListObjectsV2", "ListObjects", "ListParts", "ListMultipartUploads", "ListObjectVersions":
			return ObjectPuts, true
		}
		return ObjectGets, true
	}
	return "", false
}
