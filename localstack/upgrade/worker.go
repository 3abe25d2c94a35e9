package main

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
)

// worker is the deployed work function and what calls it.
type worker struct {
	client   *lambda.Client
	function string
	mapping  string
	queue    string // ARN
	most     int32  // MaximumConcurrency
}

// worker finds the function that eats the work queue.
func (s *stack) worker(ctx context.Context) (worker, error) {
	w := worker{client: lambda.NewFromConfig(s.cfg)}
	queue := os.Getenv("HOLDFAST_WORK_QUEUE_URL")
	queue = queue[strings.LastIndexByte(queue, '/')+1:]
	out, err := w.client.ListEventSourceMappings(ctx, &lambda.ListEventSourceMappingsInput{})
	if err != nil {
		return w, fmt.Errorf("look for the work function: %w", err)
	}
	for _, m := range out.EventSourceMappings {
		if strings.HasSuffix(aws.ToString(m.EventSourceArn), ":"+queue) {
			w.function, w.mapping, w.queue = aws.ToString(m.FunctionArn), aws.ToString(m.UUID), aws.ToString(m.EventSourceArn)
			if m.ScalingConfig != nil {
				w.most = aws.ToInt32(m.ScalingConfig.MaximumConcurrency)
			}
			return w, nil
		}
	}
	return w, fmt.Errorf("no function eats %s", queue)
}

// beside deploys the new code as another function with the old one's role and
// settings, and lets it eat the same queue. To update the old one in place would
// show less: the local AWS kills what runs of it, where AWS lets it end. The answer
// is the sum of the new code.
func (w worker) beside(ctx context.Context, functions string) (sum string, err error) {
	bootstrap, err := os.ReadFile(filepath.Join(functions, "work", "bootstrap"))
	if err != nil {
		return "", err
	}
	code, err := zipped(bootstrap)
	if err != nil {
		return "", err
	}
	old, err := w.client.GetFunctionConfiguration(ctx, &lambda.GetFunctionConfigurationInput{FunctionName: &w.function})
	if err != nil {
		return "", fmt.Errorf("look at the work function: %w", err)
	}
	// What the new code alone reads would be set by the deploy.
	env := maps.Clone(old.Environment.Variables)
	if ceiling := os.Getenv("HOLDFAST_CONCURRENCY_CEILING"); ceiling != "" {
		env["HOLDFAST_CONCURRENCY_CEILING"] = ceiling
	}
	made, err := w.client.CreateFunction(ctx, &lambda.CreateFunctionInput{
		FunctionName: aws.String("upgrade-work"), Role: old.Role, Runtime: old.Runtime, Handler: old.Handler, Architectures: old.Architectures,
		MemorySize: old.MemorySize, Timeout: old.Timeout, Environment: &types.Environment{Variables: env},
		Code: &types.FunctionCode{ZipFile: code},
	})
	if err != nil {
		return "", fmt.Errorf("create the new work function: %w", err)
	}
	_, err = w.client.CreateEventSourceMapping(ctx, &lambda.CreateEventSourceMappingInput{
		FunctionName: made.FunctionArn, EventSourceArn: &w.queue, BatchSize: aws.Int32(1),
		FunctionResponseTypes: []types.FunctionResponseType{types.FunctionResponseTypeReportBatchItemFailures},
		ScalingConfig:         &types.ScalingConfig{MaximumConcurrency: aws.Int32(max(w.most, 2))},
	})
	if err != nil {
		return "", fmt.Errorf("let it eat the work queue: %w", err)
	}
	h := sha256.Sum256(bootstrap)
	return hex.EncodeToString(h[:]), nil
}

// retire lets the old function take no more messages and waits until whatever it
// was at is over, as AWS does with the old code of an update; its own timeout
// bounds that.
func (w worker) retire(ctx context.Context) error {
	if err := w.enable(ctx, false); err != nil {
		return err
	}
	old, err := w.client.GetFunctionConfiguration(ctx, &lambda.GetFunctionConfigurationInput{FunctionName: &w.function})
	if err != nil {
		return fmt.Errorf("look at the work function: %w", err)
	}
	if !pause(ctx, time.Duration(aws.ToInt32(old.Timeout)+1)*time.Second) {
		return ctx.Err()
	}
	return nil
}

// enable says whether the function is called for what is in the queue.
func (w worker) enable(ctx context.Context, on bool) error {
	_, err := w.client.UpdateEventSourceMapping(ctx, &lambda.UpdateEventSourceMappingInput{UUID: &w.mapping, Enabled: &on})
	if err != nil {
		return fmt.Errorf("let the work function be called (%v): %w", on, err)
	}
	return nil
}

func zipped(bootstrap []byte) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	h := &zip.FileHeader{Name: "bootstrap", Method: zip.Deflate}
	h.SetMode(0o755)
	f, err := z.CreateHeader(h)
	if err == nil {
		_, err = f.Write(bootstrap)
	}
	if err == nil {
		err = z.Close()
	}
	return b.Bytes(), err
}

// sight looks which workers run: the local AWS runs functions as processes of this
// machine.
type sight struct {
	fresh  string // sum of the new code
	looks  int
	seen   int // looks that saw any worker: none where there is no /proc
	beside int // looks that saw an old and a new one
}

func (s *sight) look() {
	s.looks++
	var before, after bool
	for _, sum := range workers() {
		if sum == s.fresh {
			after = true
		} else {
			before = true
		}
	}
	if before || after {
		s.seen++
	}
	if before && after {
		s.beside++
	}
}

// String is for the reader.
func (s *sight) String() string {
	if s.seen == 0 {
		return "which workers ran can't be seen on this machine"
	}
	return fmt.Sprintf("old and new workers were there at once in %d of %d looks", s.beside, s.looks)
}

// workers are the processes of the work function, each with the sum of its
// executable; none where there is no /proc.
func workers() map[string]string {
	found := map[string]string{}
	queue := []byte("HOLDFAST_WORK_QUEUE_URL=" + os.Getenv("HOLDFAST_WORK_QUEUE_URL"))
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return found
	}
	for _, d := range dirs {
		environ, err := os.ReadFile(filepath.Join("/proc", d.Name(), "environ"))
		if err != nil || !bytes.Contains(environ, queue) {
			continue
		}
		exe := filepath.Join("/proc", d.Name(), "exe")
		if name, err := os.Readlink(exe); err != nil || !strings.HasPrefix(filepath.Base(name), "bootstrap") {
			continue
		}
		if code, err := os.ReadFile(exe); err == nil { // also of one that was deleted since
			sum := sha256.Sum256(code)
			found[d.Name()] = hex.EncodeToString(sum[:])
		}
	}
	return found
}
