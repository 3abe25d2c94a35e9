package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"

	"github.com/cenkalti/backoff/v5"

	"holdfast/internal/openai"
)

// keyFlag is the flag that names a request for ever.
const keyFlag = "idempotency-key"

// create creates the batch. Without a key that is asked for once: whether a lost
// answer means a second batch is not for a program to guess. With one it is patient.
//
// To the API a request is its file's id, and who uploads the same bytes again has
// another one. So what a key stands for already is looked at: if its input is this
// very file, byte for byte, that one is asked for in place of the new one. Whether the
// rest of the request is the same remains the API's to say.
//
// The new file goes if this call made it. One that was there before may be another
// batch's, and stays.
func (a *app) create(ctx context.Context, c *client, create openai.CreateBatch, key string, f *os.File, size int64, sent *saved) (openai.Batch, error) {
	b, err := c.createBatch(ctx, create, key)
	conflict, ok := errors.AsType[*apiError](err)
	if key == "" || !ok || conflict.Foreign != "" || conflict.Code != "idempotency_conflict" {
		return b, err
	}
	before, sameErr := a.sameInput(ctx, c, batchNamed(conflict.Message), f, size)
	switch {
	case ctx.Err() != nil:
		return b, ctx.Err()
	case sameErr != nil:
		if u, ok := errors.AsType[*url.Error](sameErr); ok {
			sameErr = u.Err // without the URL: a signed one is a credential
		}
		return b, &untold{err, sameErr}
	case before == "" || before == create.InputFileID:
		return b, err
	}
	anew := create.InputFileID
	create.InputFileID = before
	if b, err = c.createBatch(ctx, create, key); err != nil {
		return b, err
	}
	a.note("This file was submitted before under that key, as %s", before)
	if sent.whole() {
		return b, nil
	}
	sent.forget()
	if req, err := c.request(ctx, http.MethodDelete, "/v1/files/"+url.PathEscape(anew), nil); err == nil {
		_ = c.do(req, new(struct{})) // what stays expires
	}
	return b, nil
}

// untold is a refused key of which nobody could see whether its batch is of this very
// file. Whoever then takes another key may start the same lines again.
type untold struct {
	refused, why error
}

func (u *untold) Error() string { return u.refused.Error() }
func (u *untold) Unwrap() error { return u.refused }

// createBatch sends the request; with a key as often as it takes.
func (c *client) createBatch(ctx context.Context, create openai.CreateBatch, key string) (b openai.Batch, err error) {
	body, err := json.Marshal(create)
	if err != nil {
		return b, err
	}
	once := func() error {
		req, err := c.request(ctx, http.MethodPost, "/v1/batches", bytes.NewReader(body))
		if err != nil {
			return backoff.Permanent(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if key != "" {
			req.Header.Set(openai.IdempotencyKey, key)
		}
		return c.do(req, &b)
	}
	if key == "" {
		return b, once()
	}
	return b, c.patiently(ctx, once)
}

// ofABatch is the id that a key's batch has.
var ofABatch = regexp.MustCompile(`batch_[a-z2-7]{32}`)

// batchNamed is the last batch that a refusal names: the key comes before it, and may
// look like one. "": none.
func batchNamed(message string) string {
	all := ofABatch.FindAllString(message, -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

// sameInput gives the batch's input file if it holds what f does, else "".
func (a *app) sameInput(ctx context.Context, c *client, batchID string, f *os.File, size int64) (fileID string, err error) {
	if batchID == "" {
		return "", nil
	}
	var b openai.Batch
	if err := c.get(ctx, "/v1/batches/"+batchID, &b); err != nil {
		return "", err
	}
	var file openai.File
	if err := c.get(ctx, "/v1/files/"+url.PathEscape(b.InputFileID), &file); err != nil {
		return "", err
	}
	if file.Bytes != size {
		return "", nil
	}
	body, err := c.steady(ctx, contentPath(file.ID))
	if err != nil {
		return "", err
	}
	defer body.Close()
	bar := a.newBar("comparing", size, true)
	defer bar.finish()
	same, err := sameBytes(bar.reader("comparing", body), io.NewSectionReader(f, 0, size))
	if err != nil || !same {
		return "", err
	}
	return file.ID, nil
}

// sameBytes reports whether both give the same to their ends, and reads on only while
// they do.
func sameBytes(a, b io.Reader) (bool, error) {
	const at = 64 << 10
	x, y := bufio.NewReaderSize(a, at), bufio.NewReaderSize(b, at)
	for {
		p, errP := x.Peek(at)
		q, errQ := y.Peek(at)
		for _, err := range []error{errP, errQ} {
			if err != nil && err != io.EOF {
				return false, err
			}
		}
		if !bytes.Equal(p, q) || errP != errQ {
			return false, nil
		}
		if errP == io.EOF {
			return true, nil
		}
		_, _ = x.Discard(at) // both hold it
		_, _ = y.Discard(at)
	}
}
