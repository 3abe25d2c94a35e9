// Command modelsim is a simulated model server: it speaks the shape of
// OpenAI's endpoints, misbehaves on request, and counts what it was sent, so
// that tests can say how often each line was really replayed and whether its
// bytes arrived untouched. It is for demos and tests only.
//
// How it answers is chosen by the request's "model":
//
//	sim, or any other name  a completion (an embedding, …) at once, or after -latency
//	sim-slow-<ms>           the same after that many milliseconds
//	sim-400                 400 with an OpenAI error body
//	sim-429-once            429 with Retry-After-Ms at a line's first try, then as sim
//	sim-429                 429 always
//	sim-500                 500 always
//	sim-nonjson             200 with a body that is not JSON
//	sim-large-<bytes>       a reply of about that size
//	sim-hang                no answer until the client gives up
//	sim-reset               the connection is closed without an answer
//
// A completion that was asked for with "stream": true comes as server-sent events in
// the shape of OpenAI's chat chunks, with the usage last where
// stream_options.include_usage asks for it.
//
// With -slots N at most N requests are answered at once; the others wait in line,
// as they would at a real server of that size.
//
// GET /sim/stats?batch=ID tells what arrived for a batch: a total, the most
// requests that were here together and that were answered together, the time spent
// answering, and when the first arrived and the latest was answered.
// GET /sim/requests?batch=ID tells beside it by line index the number of tries
// and the SHA-256 of the last body. GET /sim/flying lists the requests that are here
// now, of any batch, with the client's port. POST /sim/reset forgets everything.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:4567", "loopback address and port to serve on; port 0 picks a free one")
	latency := flag.Duration("latency", 0, "how long an answer takes: the median when -sigma is set")
	sigma := flag.Float64("sigma", 0, "spread of lognormal latencies; 0 makes them constant")
	slots := flag.Int("slots", 0, "requests answered at once, the others wait in line; 0: any number")
	flag.Parse()
	if flag.NArg() > 0 || *latency < 0 || *sigma < 0 || math.IsNaN(*sigma) || *slots < 0 {
		fmt.Fprintln(os.Stderr, "modelsim: unexpected argument, or a negative -latency, -sigma or -slots; see modelsim -help")
		os.Exit(2)
	}
	if err := run(*listen, options{latency: *latency, sigma: *sigma, slots: *slots}); err != nil {
		fmt.Fprintln(os.Stderr, "modelsim:", err)
		os.Exit(1)
	}
}

func run(listen string, o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("-listen %q: want host:port", listen)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("-listen %q: a loopback address only, it has no access control", listen)
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: newServer(o), ReadHeaderTimeout: 10 * time.Second}
	fmt.Printf("listening on http://%s\n", l.Addr())
	go func() {
		<-ctx.Done()
		srv.Close()
	}()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
