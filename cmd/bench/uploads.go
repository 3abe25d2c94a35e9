package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/openai"
)

// uploadBytes is the largest file that direct parts are joined to, and what both
// sides of a large upload are measured with.
const uploadBytes = 512 << 20

// uploadMemory measures both ends of a large upload: the command line that sends
// 512 MiB to the store in parts, and the api function that joins 128 parts of 4 MiB.
func uploadMemory(functions string) ([]figure, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	client, took, err := peakOfSubmit(filepath.Join(filepath.Dir(self), "holdfast"))
	if err != nil {
		return nil, fmt.Errorf("submit: %w", err)
	}
	api, joined, err := peakOfJoin(filepath.Join(functions, "api", "bootstrap"))
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	const mib = 1 << 20
	return []figure{
		atMost("holdfast submit, 512 MiB in parts: peak RSS", float64(client)/mib, 64, "MiB"),
		unbounded("  to a store that discards them", uploadBytes/mib/took.Seconds(), "MiB/s"),
		atMost("api, joining 128 direct parts to 512 MiB: peak RSS", float64(api)/mib, 128, "MiB"),
		unbounded("  from a store that makes them up", uploadBytes/mib/joined.Seconds(), "MiB/s"),
	}, nil
}

// peakOfSubmit runs the command line against an API and a store that keep nothing.
func peakOfSubmit(command string) (peak int64, took time.Duration, err error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	input := filepath.Join(dir, "in.jsonl")
	// The rest is a hole: nobody here reads the lines.
	err = os.WriteFile(input, []byte(`{"custom_id":"a","method":"POST","url":"/v1/embeddings","body":{}}`+"\n"), 0o600)
	if err == nil {
		err = os.Truncate(input, uploadBytes)
	}
	if err != nil {
		return 0, 0, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, 0, err
	}
	sink := &sink{url: "http://" + l.Addr().String(), over: make(chan struct{}), seen: make(chan struct{})}
	srv := &http.Server{Handler: sink}
	go srv.Serve(l)
	defer srv.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command, "submit", input)
	cmd.Env = append(os.Environ(), "HOLDFAST_URL="+sink.url, "HOLDFAST_API_KEY="+benchSecret, "XDG_CACHE_HOME="+dir)
	var said bytes.Buffer
	cmd.Stderr = &said
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-sink.over: // it waits for the answer to its last request
		took = time.Since(begun)
		peak, err = peakOf(cmd.Process.Pid)
		close(sink.seen)
	case early := <-ended:
		return 0, 0, fmt.Errorf("it ended before its last request: %v: %s", early, said.Bytes())
	}
	if early := <-ended; early != nil {
		return 0, 0, fmt.Errorf("%w: %s", early, said.Bytes())
	}
	sink.mu.Lock()
	defer sink.mu.Unlock()
	if sink.bytes != uploadBytes {
		return 0, 0, fmt.Errorf("%d bytes arrived, want %d", sink.bytes, uploadBytes)
	}
	return peak, took, err
}

func peakOf(pid int) (int64, error) {
	peak, known := highWater(pid)
	if !known {
		return 0, errors.New("this system doesn't tell a living process's peak memory")
	}
	return peak, nil
}

// sink is as much of the API as an upload in parts needs, and the store.
type sink struct {
	url        string
	over, seen chan struct{} // the batch is asked for; it may be answered

	mu    sync.Mutex
	bytes int64
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	upload := openai.Upload{ID: "upload_bench", Bytes: uploadBytes, Status: openai.UploadPending}
	switch path := r.URL.Path; {
	case r.Method == http.MethodPut:
		n, _ := io.Copy(io.Discard, r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.bytes += n
	case path == "/v1/uploads":
		_ = openai.WriteJSON(w, http.StatusOK, upload)
	case strings.HasSuffix(path, "/part_urls"):
		numbers, err := openai.ParsePartURLs(r.Body)
		if err != nil {
			openai.WriteError(w, err)
			return
		}
		var urls openai.PartURLs
		for _, n := range numbers {
			urls.Data = append(urls.Data, openai.PartURL{ID: "part_" + strconv.Itoa(n), Number: n, URL: s.url + "/" + strconv.Itoa(n), ExpiresAt: time.Now().Add(time.Hour).Unix()})
		}
		_ = openai.WriteJSON(w, http.StatusOK, urls)
	case strings.HasSuffix(path, "/complete"):
		upload.Status, upload.File = openai.UploadCompleted, &openai.File{ID: "file-bench", Bytes: uploadBytes}
		_ = openai.WriteJSON(w, http.StatusOK, upload)
	default:
		close(s.over)
		<-s.seen
		_ = openai.WriteJSON(w, http.StatusOK, openai.Batch{ID: "batch_bench", Status: openai.StatusValidating})
	}
}

const joinParts, joinPart = 128, uploadBytes / 128

// peakOfJoin has the api function complete one upload of direct parts.
func peakOfJoin(bootstrap string) (peak int64, took time.Duration, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, 0, err
	}
	j := &join{answered: make(chan error, 1), pieces: map[int]int64{}}
	srv := &http.Server{Handler: j}
	go srv.Serve(l)
	defer srv.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bootstrap)
	at := "http://" + l.Addr().String()
	cmd.Env = append(append(os.Environ(), functionEnv(l.Addr().String())...), "AWS_ENDPOINT_URL="+at, "AWS_ENDPOINT_URL_S3="+at)
	cmd.Stdout, cmd.Stderr = io.Discard, os.Stderr
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-j.answered:
		took = time.Since(begun)
	case early := <-ended:
		return 0, 0, fmt.Errorf("the function ended: %v", early)
	}
	if err == nil {
		peak, err = peakOf(cmd.Process.Pid)
	}
	cancel()
	<-ended
	return peak, took, err
}

// join is Lambda's runtime, which hands out one completion, and as much of DynamoDB
// and S3 as that takes. Parts are made up, pieces are counted.
type join struct {
	answered chan error

	mu     sync.Mutex
	handed bool
	pieces map[int]int64
}

func (j *join) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	switch target := r.Header.Get("X-Amz-Target"); {
	case strings.HasSuffix(r.URL.Path, "/invocation/next"):
		j.next(w, r)
	case strings.HasSuffix(r.URL.Path, "/response"):
		var answer struct {
			StatusCode int
			Body       string
		}
		err := json.NewDecoder(r.Body).Decode(&answer)
		if err == nil && (answer.StatusCode != http.StatusOK || !strings.Contains(answer.Body, `"completed"`)) {
			err = fmt.Errorf("answered %d: %.300s", answer.StatusCode, answer.Body)
		}
		w.WriteHeader(http.StatusAccepted)
		j.answered <- err
	case target != "":
		body, _ := io.ReadAll(r.Body)
		(&lambdaAndAWS{}).dynamo(w, j.table(target, string(body)))
	case q.Has("uploads"):
		io.WriteString(w, `<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>`)
	case q.Has("delete"):
		io.WriteString(w, `<DeleteResult/>`)
	case r.Method == http.MethodPut:
		n, _ := io.Copy(io.Discard, r.Body)
		number, _ := strconv.Atoi(q.Get("partNumber"))
		j.mu.Lock()
		defer j.mu.Unlock()
		j.pieces[number] = n
		w.Header().Set("ETag", `"bench"`)
	case r.Method == http.MethodGet && q.Has("uploadId"):
		j.list(w)
	case r.Method == http.MethodGet:
		w.Header().Set("ETag", `"bench"`)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", joinPart-1, joinPart))
		w.Header().Set("Content-Length", strconv.Itoa(joinPart))
		w.WriteHeader(http.StatusPartialContent)
		block := make([]byte, 64<<10)
		for range joinPart / len(block) {
			_, _ = w.Write(block)
		}
	default:
		io.WriteString(w, `<CompleteMultipartUploadResult><ETag>"bench"</ETag></CompleteMultipartUploadResult>`)
	}
}

func (j *join) next(w http.ResponseWriter, r *http.Request) {
	j.mu.Lock()
	first := !j.handed
	j.handed = true
	j.mu.Unlock()
	if !first {
		<-r.Context().Done()
		return
	}
	var ids []string
	for i := range joinParts {
		ids = append(ids, fmt.Sprintf("part_%03d", i))
	}
	body, err := json.Marshal(openai.CompleteUpload{PartIDs: ids})
	if err != nil {
		j.answered <- err
		return
	}
	path := "/v1/uploads/" + joinID + "/complete"
	event, err := json.Marshal(map[string]any{
		"version": "2.0", "rawPath": path, "body": string(body),
		"headers":        map[string]string{"authorization": "Bearer " + benchSecret, "content-type": "application/json"},
		"requestContext": map[string]any{"http": map[string]string{"method": "POST", "path": path}, "requestId": "bench", "stage": "$default"},
	})
	if err != nil {
		j.answered <- err
		return
	}
	h := w.Header()
	h.Set("Lambda-Runtime-Aws-Request-Id", "bench")
	h.Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(time.Now().Add(time.Minute).UnixMilli()))
	h.Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:us-east-1:123456789012:function:bench")
	_, _ = w.Write(event)
}

const joinID = "upload_aaaaaaaaaaaaaaaaaaaaaaaaaa"

// table answers the key's record, or the upload as the write would leave it.
func (j *join) table(target, body string) map[string]any {
	text := func(s string) map[string]string { return map[string]string{"S": s} }
	number := func(n int64) map[string]string { return map[string]string{"N": strconv.FormatInt(n, 10)} }
	if strings.Contains(body, `"KEY#`) {
		return map[string]any{"Item": map[string]any{
			"pk": text("KEY#" + access.HashSecret(benchSecret)), "sk": text("KEY"), "v": number(1), "hash": text(access.HashSecret(benchSecret)),
			"tenant": text("bench"), "principal": text("bench"), "name": text("bench"), "scopes": map[string]any{"L": []any{text("submit")}},
		}}
	}
	parts := map[string]any{}
	for i := range joinParts {
		parts[fmt.Sprintf("part_%03d", i)] = map[string]any{"M": map[string]any{"bytes": number(joinPart), "etag": text(`"bench"`), "created_at": number(1)}}
	}
	status := "pending"
	var write struct {
		ExpressionAttributeValues map[string]struct {
			S string
			M map[string]any
		}
	}
	object := map[string]any{}
	if strings.HasSuffix(target, ".UpdateItem") && json.Unmarshal([]byte(body), &write) == nil {
		status = "completed" // a write without an object is the last one
		for _, v := range write.ExpressionAttributeValues {
			if v.M["key"] != nil {
				status, object = "settled", v.M
			}
		}
	}
	item := map[string]any{
		"pk": text("U#bench"), "sk": text(joinID), "v": number(1), "tenant": text("bench"), "id": text(joinID), "status": text(status),
		"bytes": number(uploadBytes), "filename": text("in.jsonl"), "purpose": text("batch"), "file_expiry": number(86_400_000),
		"created_at": number(time.Now().UnixMilli()), "expires_at": number(time.Now().Add(time.Hour).UnixMilli()),
		"parts": map[string]any{"M": parts}, "object": map[string]any{"M": object}, "ver": number(1),
	}
	return map[string]any{"Item": item, "Attributes": item}
}

// list is S3's ListParts.
func (j *join) list(w http.ResponseWriter) {
	j.mu.Lock()
	defer j.mu.Unlock()
	io.WriteString(w, `<ListPartsResult>`)
	for n, size := range j.pieces {
		fmt.Fprintf(w, `<Part><PartNumber>%d</PartNumber><ETag>"bench"</ETag><Size>%d</Size></Part>`, n, size)
	}
	io.WriteString(w, `<IsTruncated>false</IsTruncated></ListPartsResult>`)
}
