package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/internal/config"
	"holdfast/internal/openai"
)

type submission struct {
	file     string
	endpoint string
	window   string
	metadata []string
	wait     bool
	key      string // "": none
}

func (a *app) submit() *cobra.Command {
	var s submission
	c := &cobra.Command{
		Use:   "submit FILE",
		Short: "Upload a file of requests and start a batch of it",
		Long: `Upload a JSONL file of requests (OpenAI Batch shape) and start a batch of it.

A file that one request can't carry goes to the object store in parts, several at
once. Interrupt such an upload, or lose it otherwise, and the same command goes on
where it was; what it needs for that is kept in the user's cache folder.

With --wait the command stays until the batch has ended and shows its counts,
its first results and where its files are. Interrupting it does not stop the
batch.

With --idempotency-key the same file is one batch, however often it is submitted
under that key and by whichever door; another file, or the same one for another
endpoint, window or submitter, is refused.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			s.file = args[0]
			if c.Flags().Changed(keyFlag) && !openai.ValidIdempotencyKey(s.key) {
				return usage("For example --"+keyFlag+" order-7.", "--%s takes 1 to %d printable ASCII characters, and no space at its ends", keyFlag, openai.MaxIdempotencyKey)
			}
			return a.runSubmit(c.Context(), s)
		},
	}
	c.Flags().StringVar(&s.endpoint, "endpoint", "", "endpoint of every line (default: the url of the file's first line)")
	c.Flags().StringVar(&s.window, "window", "24h", "completion window")
	c.Flags().StringArrayVar(&s.metadata, "metadata", nil, "key=value kept with the batch (repeatable)")
	c.Flags().StringVar(&s.key, keyFlag, "", "your own name for this request: under it there is one batch (1 to 255 printable ASCII characters)")
	c.Flags().BoolVar(&s.wait, "wait", false, "wait for the end of the batch")
	return c
}

func (a *app) runSubmit(ctx context.Context, s submission) error {
	create := openai.CreateBatch{Endpoint: s.endpoint, CompletionWindow: s.window}
	for _, pair := range s.metadata {
		k, v, ok := strings.Cut(pair, "=")
		if !ok || k == "" {
			return usage("For example --metadata project=eval.", "--metadata %s is not key=value", pair)
		}
		if create.Metadata == nil {
			create.Metadata = map[string]string{}
		}
		create.Metadata[k] = v
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	f, size, err := openInput(s.file)
	if err != nil {
		return err
	}
	defer f.Close()
	endpoint, n, err := firstURL(f, s.file)
	if err != nil {
		return err
	}
	if create.Endpoint == "" {
		create.Endpoint = endpoint
	}
	if create.Endpoint == "" {
		return failed("Say it with --endpoint, for example --endpoint /v1/chat/completions.", nil,
			"can't tell the endpoint of %s: line %d has no url, or is longer than %d MiB", s.file, n, firstLineBytes>>20)
	}

	started := a.now()
	file, sent, err := a.upload(ctx, c, f, s.file, size)
	if err != nil {
		if ctx.Err() != nil && sent != nil {
			return failed("The same command goes on from there.", ctx.Err(), "upload %s: interrupted", s.file)
		}
		return c.trouble("upload "+s.file, err)
	}
	create.InputFileID = file.ID
	b, err := a.create(ctx, c, create, s.key, f, size, sent)
	if err != nil {
		if u, ok := errors.AsType[*untold](err); ok {
			return failed("It may be: look at the batch that the key stands for first. Under another key its lines would be run again.", err,
				"create a batch of %s: the server answered %v; whether the batch under that key is of this very file can't be told: %v; the uploaded file remains as %[1]s",
				file.ID, err, u.why)
		}
		if e, ok := errors.AsType[*apiError](err); ok && e.Code == "file_not_found" {
			sent.forget() // it was uploaded before and is gone since
		} else if ok && e.Status == http.StatusBadRequest && e.Foreign == "" {
			if flag, ok := map[string]string{"endpoint": "--endpoint", "completion_window": "--window", openai.IdempotencyKey: "--" + keyFlag}[e.Param]; ok {
				return notAllowed(flag, file, e)
			}
		}
		told := c.trouble("create a batch of "+file.ID, err)
		switch {
		case !mayBeDone(err):
			return told
		case s.key != "":
			return alsoHint(told, "The batch may be there all the same; the same command finds it.")
		}
		return alsoHint(told, "The batch may be there all the same, and submitting again would make another: look for that file in GET /v1/batches first. With --"+keyFlag+" the same command finds its batch.")
	}
	if s.key == "" {
		sent.forget() // under a key the same command finds its file, and so its batch
	}
	if !s.wait {
		if a.json {
			return a.printJSON(b)
		}
		a.note("Batch %s is %s. See how it goes: holdfast status %[1]s", b.ID, b.Status)
		return a.print("%s\n", b.ID)
	}
	a.note("Batch %s created from %s", b.ID, b.InputFileID)
	b, err = a.wait(ctx, c, b)
	if err != nil {
		if ctx.Err() != nil {
			return failed("See how it goes: holdfast status "+b.ID+". Stop it: holdfast cancel "+b.ID, ctx.Err(), "interrupted; batch %s goes on without you", b.ID)
		}
		return alsoHint(c.trouble("wait for "+b.ID, err), "Batch "+b.ID+" goes on without you: don't submit the file again.")
	}
	return a.conclude(ctx, c, b, a.now().Sub(started))
}

// notAllowed is about a batch that the server refused for one flag, after the
// upload.
func notAllowed(flag string, file openai.File, e *apiError) error {
	hint := "Submit it again with another " + flag
	if _, allowed, ok := strings.Cut(e.Message, "supported are "); ok {
		hint += "; allowed: " + strings.TrimSuffix(allowed, ".")
	}
	expiry := "will expire"
	if file.ExpiresAt != nil {
		expiry += " " + time.Unix(*file.ExpiresAt, 0).UTC().Format(time.RFC3339)
	}
	return failed(hint+".", e, "create a batch of %s: the server answered %v; the uploaded file remains as %[1]s and %[3]s", file.ID, e, expiry)
}

// openInput opens a file that can be uploaded.
func openInput(name string) (*os.File, int64, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, failed("", err, "can't read the input: %v", err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		err = failed("", err, "can't read the input: %v", err)
	case !info.Mode().IsRegular():
		err = failed("", nil, "can't submit %s: it is not a regular file", name)
	case info.Size() == 0:
		err = failed("Put one request on each line; docs and examples are in the README.", nil, "can't submit %s: it is empty", name)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// rightLine is what a line of an input looks like.
const rightLine = `{"custom_id":"1","method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"user","content":"Hi"}]}}`

// firstLineBytes is how much of the first line is looked at.
const firstLineBytes = 16 << 20

// firstURL reads what endpoint the file's first request is for, "" where it
// doesn't say so or is too long to tell, and on which line it is; then it rewinds
// the file. The server checks every line; this finds a default, and files that
// aren't of requests at all.
func firstURL(f *os.File, name string) (endpoint string, n int, err error) {
	r := bufio.NewReader(f)
	n = 1
	for first := byte(0); first != '{'; {
		first, err = r.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return "", n, failed("Put one request on each line, for example "+rightLine, nil, "can't submit %s: it has blank lines only", name)
		case err != nil:
			return "", n, failed("", err, "can't read the input: %v", err)
		case first == '\n':
			n++
		case first == '\xef' && n == 1:
			if mark, err := r.Peek(2); err == nil && string(mark) == "\xbb\xbf" {
				_, _ = r.Discard(2) // it was seen
				continue
			}
			return "", n, notRequests(name, n)
		case first != '{' && first != ' ' && first != '\t' && first != '\r':
			return "", n, notRequests(name, n)
		}
	}
	// Something without line ends must not fill the memory.
	line, err := bufio.NewReader(io.LimitReader(r, firstLineBytes)).ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", n, failed("", err, "can't read the input: %v", err)
	}
	if len(line) < firstLineBytes {
		var request map[string]json.RawMessage
		if json.Unmarshal(append([]byte("{"), line...), &request) != nil {
			return "", n, notRequests(name, n)
		}
		_ = json.Unmarshal(request["url"], &endpoint) // another type is as good as none
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", n, failed("", err, "can't read the input: %v", err)
	}
	return endpoint, n, nil
}

func notRequests(name string, n int) error {
	return failed("Put one request on each line, for example "+rightLine, nil, "can't submit %s: it is not JSONL of requests: line %d is not a JSON object", name, n)
}

// upload sends the file by the way that its size asks for. What comes back beside
// the file is what was saved to resume it, nil where there is nothing to resume.
func (a *app) upload(ctx context.Context, c *client, f *os.File, path string, size int64) (openai.File, *saved, error) {
	name := filepath.Base(path)
	if size <= config.Default().DirectBytes {
		file, err := a.sendDirect(ctx, c, f, size, name)
		// An installation may take less in one request than the default.
		if e, ok := errors.AsType[*apiError](err); !ok || e.Code != "file_too_large_for_direct_upload" {
			return file, nil, err
		}
	}
	return a.sendParts(ctx, c, f, path, size, name)
}

// sendDirect sends the file as one multipart request, straight from the disk.
func (a *app) sendDirect(ctx context.Context, c *client, f io.Reader, size int64, name string) (file openai.File, err error) {
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	if err := w.WriteField("purpose", openai.PurposeBatch); err != nil {
		return file, err
	}
	if _, err := w.CreateFormFile("file", name); err != nil {
		return file, err
	}
	head := bytes.Clone(form.Bytes())
	form.Reset()
	if err := w.Close(); err != nil {
		return file, err
	}
	bar := a.newBar("uploading", size, true)
	defer bar.finish()
	// A file that grows meanwhile must not break the announced length.
	body := io.MultiReader(bytes.NewReader(head), bar.reader("uploading", io.LimitReader(f, size)), &form)
	length := int64(len(head)) + size + int64(form.Len())
	err = c.post(ctx, "/v1/files", w.FormDataContentType(), body, length, &file)
	return file, err
}
