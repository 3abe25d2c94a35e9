// Package logs reads the functions' log groups. It is the only importer of that
// client, and for operators' programs alone: no function reads a log.
package logs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
)

// ErrNoGroup: there is no log group of that name.
var ErrNoGroup = errors.New("no such log group")

// Logs reads log groups. It is safe for concurrent use.
type Logs struct{ client *cloudwatchlogs.Client }

// New returns the logs of cfg's account and region. It makes no call. Reading
// needs logs:FilterLogEvents.
func New(cfg aws.Config) *Logs { return &Logs{cloudwatchlogs.NewFromConfig(cfg)} }

// Find gives the lines of a group, within [from, to], that hold every one of the
// terms (letters, digits and underscores), oldest first. ErrNoGroup; after an
// error there are no more.
func (l *Logs) Find(ctx context.Context, group string, from, to time.Time, terms ...string) iter.Seq2[string, error] {
	pattern := ""
	for _, term := range terms {
		pattern += ` "` + term + `"`
	}
	return func(yield func(string, error) bool) {
		pages := cloudwatchlogs.NewFilterLogEventsPaginator(l.client, &cloudwatchlogs.FilterLogEventsInput{
			LogGroupName: &group, FilterPattern: aws.String(pattern[min(1, len(pattern)):]),
			StartTime: aws.Int64(from.UnixMilli()), EndTime: aws.Int64(to.UnixMilli()),
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				if _, none := errors.AsType[*types.ResourceNotFoundException](err); none {
					err = fmt.Errorf("%w: %w", ErrNoGroup, err)
				}
				yield("", fmt.Errorf("read logs of %s: %w", group, err))
				return
			}
			for _, e := range page.Events {
				if !yield(aws.ToString(e.Message), nil) {
					return
				}
			}
		}
	}
}
