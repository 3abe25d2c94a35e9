// Package function is what the mains of all functions do alike: they read the
// environment, log JSON lines, see to it that what libraries log quotes nobody, and hand a
// handler to Lambda's runtime.
package function

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"

	"holdfast/internal/aws/awsconf"
	"holdfast/internal/config"
)

// Run wires a function and serves its invocations with what handle makes of it,
// a function that [lambda.Start] takes. It doesn't return: the process ends with 1,
// and a log line that names every fault, when wire fails.
func Run[H any](wire func(ctx context.Context, getenv func(string) string, log *slog.Logger) (H, error), handle func(H) any) {
	log := slog.New(slog.NewJSONHandler(os.Stdout, nil))
	quoteLess(log)
	h, err := wire(context.Background(), os.Getenv, log)
	if err != nil {
		log.Error("can't start", "error", err)
		os.Exit(1)
	}
	lambda.Start(handle(h))
}

// Load reads the settings, the resources that the function of this role needs, and
// the SDK's configuration. It makes no call. The error joins all that is wrong with
// the environment, so that one deploy mends it.
func Load(ctx context.Context, getenv func(string) string, role config.Role) (config.Settings, config.Resources, aws.Config, error) {
	settings, err := config.Parse(getenv)
	res, resErr := config.ParseResources(getenv, role)
	if err := errors.Join(err, resErr); err != nil {
		return config.Settings{}, config.Resources{}, aws.Config{}, err
	}
	cfg, err := awsconf.Load(ctx)
	return settings, res, cfg, err
}
