package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"

	"holdfast/internal/config"
	"holdfast/internal/deploy"
)

func main() { os.Exit(run()) }

func run() int {
	defer jsii.Close()
	app := newApp("")
	opts, err := parseOptions(os.Getenv, func(name string) string { return contextValue(app, name) })
	if err = errors.Join(append(deploy.Unknown(os.Environ()), err)...); err != nil {
		fmt.Fprintf(os.Stderr, "holdfast: the stack isn't synthesized, because:\n%v\n", err)
		return 1
	}
	for _, fault := range config.Fallbacks(os.Getenv) {
		fmt.Fprintf(os.Stderr, "holdfast: ignored, its default holds: %v\n", fault)
	}
	newStack(app, stackName, opts)
	app.Synth(nil)
	fmt.Fprintf(os.Stderr, "holdfast: a model sees at most %d requests at once (%d functions of %d each)\n",
		opts.settings.InFlight(), opts.settings.MaxConcurrency, opts.settings.ConcurrencyCeiling)
	return 0
}

// newApp makes the app, checked by cdk-nag, whose findings fail the deploy. outdir
// is empty under the CDK command line, which names the folder itself.
func newApp(outdir string) awscdk.App {
	props := &awscdk.AppProps{
		AnalyticsReporting: jsii.Bool(false),
		StackTraces:        jsii.Bool(false), // of node, which nobody here reads
	}
	if outdir != "" {
		props.Outdir = jsii.String(outdir)
	}
	app := awscdk.NewApp(props)
	awscdk.Aspects_Of(app).Add(cdknag.NewAwsSolutionsChecks(&cdknag.NagPackProps{Verbose: jsii.Bool(true)}), nil)
	return app
}

// contextValue returns a context value as text, empty when it isn't set.
func contextValue(app awscdk.App, name string) string {
	value := app.Node().TryGetContext(jsii.String(name))
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}
