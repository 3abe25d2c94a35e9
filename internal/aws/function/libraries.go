package function

import (
	"io"
	stdlog "log"
	"log/slog"
	"strings"
)

// quoteLess takes over the log that libraries write to without being asked: each of
// their messages becomes a warning in log, without what it quotes. net/http quotes there
// what a server sends behind the end of an answer, and that may be anything: a reply, or
// our own token.
func quoteLess(log *slog.Logger) {
	stdlog.SetFlags(0)
	stdlog.SetPrefix("")
	stdlog.SetOutput(libraries{log})
}

// libraries is a writer of such messages, one a call.
type libraries struct{ log *slog.Logger }

var _ io.Writer = libraries{}

// errorOfOurs begins what Lambda's client writes of an error or a panic of our handler,
// which is ours: it quotes nobody.
const errorOfOurs = `{"errorMessage":`

// Write never fails.
func (l libraries) Write(p []byte) (int, error) {
	said := strings.TrimSpace(string(p))
	if !strings.HasPrefix(said, errorOfOurs) {
		said, _, _ = strings.Cut(said, `"`)
	}
	l.log.Warn("a library says", "text", said)
	return len(p), nil
}
