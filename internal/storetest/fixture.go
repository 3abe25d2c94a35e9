package storetest

import (
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
	"holdfast/internal/openai"
)

// awkward is data that a store must give back as it was: quotes, every kind of
// control character that UTF-8 can hold, and what lies beyond the first plane.
const awkward = "é \"q\" 'q' \\ / # % + & < > \x00 \x01 \t \r \n \x7f \u0085 \u200b \u2028 \ufeff \ufffd 日本 𝔘 👩‍🚀 e\u0301 {\"a\":1} :seen #pk"

// unique is a string that no other case has: lower-case, URL-safe.
func unique() string { return strings.ToLower(rand.Text())[:16] }

// tenant is a new tenant's name.
func tenant() string { return "t-" + unique() }

func token() lease.Token { return lease.NewToken() }

// at is an instant that all cases count from, plus d: not in whole
// milliseconds, and in a zone of its own, as a caller's clock would be.
func at(d time.Duration) time.Time {
	return time.Date(2026, 3, 29, 1, 59, 59, 123_456_789, time.FixedZone("", 2*60*60)).Add(d)
}

// bareBatch is as little of a batch as there can be.
func bareBatch() batch.Batch {
	return batch.Batch{Tenant: tenant(), ID: "batch_" + unique(), Status: batch.Validating, CreatedAt: at(0)}
}

// fullBatch has everything that a batch can have when it is created.
func fullBatch() batch.Batch {
	b := bareBatch()
	b.Submitter = "arn:aws:iam::111122223333:role/Submit+er"
	b.RequestID = "req_" + unique()
	b.Endpoint = "/v1/chat/completions"
	b.Input = batch.Input{FileID: "file-" + unique(), Object: fullObject()}
	b.Window = "24h"
	b.Metadata = map[string]string{awkward: awkward, "empty": "", "key": "value"}
	b.OutputExpiry = 36 * time.Hour
	b.Deadline, b.Due = at(24*time.Hour), at(23*time.Hour)
	b.Workflow = b.ID
	return b
}

func fullObject() batch.Object {
	return batch.Object{
		Bucket: "inputs-bucket", Key: "in/acme/" + awkward, Version: "v.3_x-Y", ETag: "\"0123456789abcdef-2\"", Bytes: 10 << 30,
	}
}

// key is a part of a batch that exists in no other case.
func key(n int) batch.PartKey {
	return batch.PartKey{Tenant: tenant(), Batch: "batch_" + unique(), N: n}
}

// barePart is as little of a part as there can be.
func barePart(k batch.PartKey) batch.Part { return batch.Part{PartKey: k, State: batch.Pending} }

// fullPart has everything that a part can have when it is planned.
func fullPart(k batch.PartKey) batch.Part {
	p := barePart(k)
	p.Due = at(2 * time.Hour)
	p.FirstLine, p.FirstPhysical, p.Lines = 9_999_500, 10_000_001, 500
	p.From, p.To = 9<<30, 10<<30
	p.CreatedAt = at(0)
	return p
}

// midPart is fullPart at work: leased by tok, with 3 of 5 lines committed.
func midPart(k batch.PartKey, tok lease.Token) batch.Part {
	p := fullPart(k)
	p.State, p.Owner, p.Ver = batch.Leased, tok, 41
	p.LeaseUntil, p.Due = at(2*time.Minute), at(time.Minute)
	p.Attempts, p.Lapses, p.Steals = 2, 4, 3
	p.Begun, p.Repeats = 2, 31
	p.Lines, p.Processed = 5, 3
	p.DoneLines = bits(5, 0, 2, 4)
	p.Chunks = []batch.Chunk{chunk(1), chunk(2)}
	p.TaskToken, p.LastError = "token/+==", "earlier: "+awkward
	return p
}

func bits(n int, set ...int) batch.Bitmap {
	b := batch.NewBitmap(n)
	for _, i := range set {
		b.Set(i)
	}
	return b
}

// chunk is one of n records, all but one of them ok.
func chunk(n int) batch.Chunk {
	return batch.Chunk{
		Key: fmt.Sprintf("acme/parts/batch_1/0/%s-1.jsonl", unique()), N: n, OK: n - 1, Err: 1, Bytes: int64(n) << 32,
		Sum: strings.Repeat("0123456789abcdef", 4),
	}
}

// reasons are n faults of an input, as awkward as they come.
func reasons(n int) []openai.BatchError {
	errs := make([]openai.BatchError, n)
	for i := range errs {
		errs[i] = openai.BatchError{Code: fmt.Sprintf("code_%d", i), Message: strings.Repeat(awkward, 4)}
		if i%2 == 1 {
			param, line := awkward, i*100_000
			errs[i].Param, errs[i].Line = &param, &line
		}
		if i%3 == 2 {
			param, line := "", 0
			errs[i].Param, errs[i].Line = &param, &line
		}
	}
	return errs
}

func usage() openai.Usage {
	return openai.Usage{
		InputTokens: 1 << 50, InputTokensDetails: openai.InputTokensDetails{CachedTokens: 2},
		OutputTokens: 3, OutputTokensDetails: openai.OutputTokensDetails{ReasoningTokens: 4},
		TotalTokens: 1<<50 + 3,
	}
}
