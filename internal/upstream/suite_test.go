package upstream

import (
	"io"
	"net/http"
	"strconv"
	"testing"

	"holdfast/internal/batch"
	"holdfast/internal/storetest"
)

// The port's suite, with a real server at the other end.
func TestModelSuite(t *testing.T) {
	storetest.RunModel(t, func(st storetest.T) storetest.ModelPorts {
		return storetest.ModelPorts{New: func(st storetest.T, answer func([]byte) storetest.ModelAnswer) batch.Model {
			return serve(t, &Options{ReplyBytes: storetest.ModelReplyBytes, Timeout: storetest.ModelTimeout}, scripted(answer))
		}}
	})
}

// scripted is a server that answers as the suite says.
func scripted(answer func([]byte) storetest.ModelAnswer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		a := answer(body)
		if a.Wait != nil {
			a.Wait()
		}
		if a.RequestID != "" {
			w.Header().Set("X-Request-Id", a.RequestID)
		}
		if a.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(a.RetryAfter.Seconds())))
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(a.Body)))
		w.WriteHeader(a.Status)
		if !a.Stall && !a.Break {
			w.Write(a.Body)
			return
		}
		w.Write(a.Body[:len(a.Body)/2])
		http.NewResponseController(w).Flush()
		if a.Stall {
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	}
}
