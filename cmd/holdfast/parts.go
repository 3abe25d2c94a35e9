package main

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"holdfast/internal/openai"
)

// Large files go to the store in parts, several at once.
const (
	leastPart   = 8 << 20 // bytes; what a torn connection costs
	partsAtOnce = 4
	linksAtOnce = 32          // URLs asked for in one request
	linkMargin  = time.Minute // a URL with less time left is asked for anew
)

// partBytes is the size of every part but the last, such that there are never
// more than the contract allows.
func partBytes(size int64) int64 {
	const mib = 1 << 20
	least := (size + openai.MaxUploadParts - 1) / openai.MaxUploadParts
	return max(leastPart, (least+mib-1)/mib*mib)
}

// sendParts uploads the file by the Uploads API, straight to the store. What an
// earlier call sent of the same file, and the store still has, isn't sent again:
// see saved. The caller forgets that once it needs the file no more.
func (a *app) sendParts(ctx context.Context, c *client, f *os.File, path string, size int64, name string) (openai.File, *saved, error) {
	s := a.savedUpload(c, f, path, size)
	u, err := s.resume(ctx, c)
	if err != nil {
		return openai.File{}, s, err
	}
	if u.File != nil {
		s.file = true
		a.note("Uploaded before: %s", u.File.ID)
		return *u.File, s, nil
	}
	if u.ID == "" {
		create := openai.CreateUpload{Filename: name, Purpose: openai.PurposeBatch, Bytes: size, MimeType: "application/jsonl"}
		if err := c.send(ctx, "/v1/uploads", create, &u); err != nil {
			return openai.File{}, s, err
		}
		s.Upload, s.PartBytes = u.ID, partBytes(size)
		if err := s.save(); err != nil {
			a.note("An interrupted upload could not be resumed: %v", err)
		}
	}
	t := &transfer{c: c, f: f, upload: u.ID, size: size, part: s.PartBytes, links: map[int]openai.PartURL{}}
	t.ids = make([]string, t.parts())
	if u.Parts != nil {
		t.arrived(*u.Parts)
		a.note("Resuming: %d of %d parts are there already", t.parts()-len(t.missing()), t.parts())
	}
	t.todo = t.missing()
	t.bar = a.newBar("uploading", size, true)
	err = t.run(ctx)
	t.bar.finish()
	if err != nil {
		return openai.File{}, s, err
	}
	if err := s.unchanged(f); err != nil {
		s.cancel(ctx, c)
		return openai.File{}, s, err
	}
	complete := openai.CompleteUpload{PartIDs: t.ids}
	if err := c.send(ctx, "/v1/uploads/"+u.ID+"/complete", complete, &u); err != nil {
		if e, ok := errors.AsType[*apiError](err); ok && e.Status == http.StatusBadRequest {
			s.cancel(ctx, c) // it won't do the next time either
		}
		return openai.File{}, s, err
	}
	if u.File == nil {
		return openai.File{}, s, fmt.Errorf("the upload %s is %s and has no file", u.ID, u.Status)
	}
	return *u.File, s, nil
}

// send posts JSON, patiently: for what may be said twice.
func (c *client) send(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return c.patiently(ctx, func() error {
		return c.post(ctx, path, "application/json", bytes.NewReader(body), int64(len(body)), out)
	})
}

// transfer is the parts of one upload on their way.
type transfer struct {
	c          *client
	f          *os.File
	upload     string
	size, part int64
	ids        []string // by number, from 1
	todo       []int    // numbers of the parts that have to be sent, ascending

	linking sync.Mutex
	links   map[int]openai.PartURL

	mu   sync.Mutex
	bar  *bar
	sent int64
}

func (t *transfer) parts() int { return int((t.size + t.part - 1) / t.part) }

// section is where part n lies in the file.
func (t *transfer) section(n int) (from, size int64) {
	from = int64(n-1) * t.part
	return from, min(t.part, t.size-from)
}

// arrived takes note of what the store has. A part of another size is sent again.
func (t *transfer) arrived(parts []openai.UploadPart) {
	for _, p := range parts {
		if p.Number < 1 || p.Number > len(t.ids) {
			continue
		}
		if _, size := t.section(p.Number); p.Bytes == size {
			t.ids[p.Number-1] = p.ID
			t.sent += size
		}
	}
}

// missing are the numbers of the parts that the store doesn't have.
func (t *transfer) missing() (numbers []int) {
	for i, id := range t.ids {
		if id == "" {
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}

// run sends what is missing.
func (t *transfer) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	numbers := make(chan int)
	var workers sync.WaitGroup
	for range min(partsAtOnce, max(1, len(t.todo))) {
		workers.Go(func() {
			for n := range numbers {
				if err := t.sendPart(ctx, n); err != nil {
					cancel(err)
				}
			}
		})
	}
feed:
	for _, n := range t.todo {
		select {
		case numbers <- n:
		case <-ctx.Done():
			break feed
		}
	}
	close(numbers)
	workers.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// sendPart sends one part until the store has it, with its MD5, which the store
// checks.
func (t *transfer) sendPart(ctx context.Context, n int) error {
	from, size := t.section(n)
	sum := md5.New()
	if _, err := io.Copy(sum, io.NewSectionReader(t.f, from, size)); err != nil {
		return failed("", err, "can't read the input: %v", err)
	}
	return t.c.patiently(ctx, func() error {
		link, err := t.link(ctx, n)
		if err != nil {
			return backoff.Permanent(err)
		}
		body := &counting{r: io.NewSectionReader(t.f, from, size), t: t}
		if err := t.put(ctx, link.URL, body, size, base64.StdEncoding.EncodeToString(sum.Sum(nil))); err != nil {
			t.count(-body.n)
			return err
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.ids[n-1] = link.ID
		return nil
	})
}

// storeError is an answer of the store, which isn't the API's.
type storeError struct{ status int }

func (e *storeError) Error() string {
	return fmt.Sprintf("the object store answered %d %s", e.status, http.StatusText(e.status))
}

// put is one PUT to the store, without the key: the URL is the credential.
func (t *transfer) put(ctx context.Context, to string, body io.Reader, size int64, sum string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, to, io.NopCloser(body))
	if err != nil {
		return backoff.Permanent(errors.New("the API answered with a part's URL that is none"))
	}
	req.ContentLength = size
	req.Header.Set("Content-MD5", sum)
	resp, err := t.c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection serves on
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusNotFound: // the upload is gone; sending again won't bring it back
		return backoff.Permanent(&storeError{resp.StatusCode})
	}
	// A URL whose time is up is 403, a body that came too slowly 400.
	t.linking.Lock()
	defer t.linking.Unlock()
	clear(t.links)
	return &storeError{resp.StatusCode}
}

// link is where part n goes. URLs are asked for some at a time, when the first of
// them is needed: their time is limited.
func (t *transfer) link(ctx context.Context, n int) (openai.PartURL, error) {
	t.linking.Lock()
	defer t.linking.Unlock()
	if l, ok := t.links[n]; ok && time.Until(time.Unix(l.ExpiresAt, 0)) > linkMargin {
		return l, nil
	}
	ask := struct {
		Numbers []int `json:"part_numbers"`
	}{[]int{n}}
	for _, m := range t.todo {
		if m > n && len(ask.Numbers) < linksAtOnce {
			ask.Numbers = append(ask.Numbers, m)
		}
	}
	var got openai.PartURLs
	if err := t.c.send(ctx, "/v1/uploads/"+t.upload+"/part_urls", ask, &got); err != nil {
		return openai.PartURL{}, err
	}
	for _, l := range got.Data {
		t.links[l.Number] = l
	}
	l, ok := t.links[n]
	if !ok {
		return l, fmt.Errorf("the API gave no URL for part %d", n)
	}
	return l, nil
}

func (t *transfer) count(n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent += n
	t.bar.set("uploading", t.sent)
}

// counting tells the transfer what is read through it.
type counting struct {
	r io.Reader
	t *transfer
	n int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	c.t.count(int64(n))
	return n, err
}
