package main

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/internal/access"
	"holdfast/internal/aws/awsconf"
	"holdfast/internal/aws/dynamo"
	"holdfast/internal/config"
)

// openKeys is where keys are kept, with the AWS credentials at hand.
func openKeys(ctx context.Context, table string) (access.Store, error) {
	cfg, err := awsconf.Load(ctx)
	if err != nil {
		return nil, err
	}
	return dynamo.Open(cfg, table).Keys, nil
}

type newKey struct{ tenant, principal, scopes, name, expires string }

func (a *app) keyCreate() *cobra.Command {
	var k newKey
	c := &cobra.Command{
		Use:   "create",
		Short: "Make an API key; its secret is shown once",
		Long: `Make an API key in the table HOLDFAST_TABLE, with the AWS credentials at hand.

The secret goes to stdout, once: only its hash is stored. Scopes: submit
(upload files, create batches), read (see files, batches and results), admin
(manage keys). None implies another.`,
		Example: "  HOLDFAST_API_KEY=$(holdfast key create --tenant acme --principal ann@acme.example --name ci)",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return a.runKeyCreate(c.Context(), k) },
	}
	c.Flags().StringVar(&k.tenant, "tenant", "", "whom the key acts for (required)")
	c.Flags().StringVar(&k.principal, "principal", "", "in whose name its batches run (required)")
	c.Flags().StringVar(&k.scopes, "scopes", "submit,read", "what it allows, separated by commas")
	c.Flags().StringVar(&k.name, "name", "", "a name to tell keys apart (required)")
	c.Flags().StringVar(&k.expires, "expires", "", "when it ends: a duration (720h) or a time (2027-01-31T00:00:00Z); default never")
	for _, name := range []string{"tenant", "principal", "name"} {
		if err := c.MarkFlagRequired(name); err != nil {
			panic(err) // no such flag
		}
	}
	return c
}

func (a *app) runKeyCreate(ctx context.Context, k newKey) error {
	now := a.now()
	want := access.Key{Tenant: k.tenant, Principal: k.principal, Name: k.name}
	var err error
	if want.ExpiresAt, err = parseExpiry(k.expires, now); err != nil {
		return err
	}
	// The scopes are checked with the rest, so that everything is said at once.
	want.Scopes, _ = access.ParseScopes(k.scopes)
	key, secret, err := access.New(want, now)
	if err != nil {
		return usage("See holdfast key create --help.", "the key won't do:\n  %s", strings.ReplaceAll(err.Error(), "\n", "\n  "))
	}
	res, err := config.ParseResources(a.getenv, config.CommandLine)
	if err != nil {
		return usage("With a local stack: . .local/env. On AWS it is the stack's output TableName.", "%v", err)
	}
	store, err := a.keys(ctx, res.Table)
	if err != nil {
		return failed("Check the AWS credentials and region.", err, "can't reach the table %s: %v", res.Table, err)
	}
	if err := store.Put(ctx, key); err != nil {
		if errors.Is(err, context.Canceled) {
			return failed("", err, "interrupted; the key may exist, but its secret is gone")
		}
		return a.keyTrouble(res.Table, err)
	}
	if a.json {
		out := struct {
			Secret    string         `json:"secret"`
			Tenant    string         `json:"tenant"`
			Principal string         `json:"principal"`
			Scopes    []access.Scope `json:"scopes"`
			Name      string         `json:"name"`
			CreatedAt time.Time      `json:"created_at"`
			ExpiresAt *time.Time     `json:"expires_at"`
		}{secret, key.Tenant, key.Principal, key.Scopes, key.Name, key.CreatedAt, nil}
		if !key.ExpiresAt.IsZero() {
			out.ExpiresAt = &key.ExpiresAt
		}
		return a.printJSON(out)
	}
	a.note("Key %q for %s, tenant %s, scopes %s", key.Name, key.Principal, key.Tenant, k.scopes)
	a.note("This is its secret. Keep it now: it is not stored and won't be shown again.")
	return a.print("%s\n", secret)
}

// keyTrouble words why the table didn't take a key. What the SDK says is long and
// names calls that nobody made.
func (a *app) keyTrouble(table string, err error) error {
	const local = " With a local stack: . .local/env"
	endpoint, set := "AWS", false
	for _, name := range []string{"AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL"} {
		if u, err := url.Parse(a.getenv(name)); err == nil && u.Host != "" {
			endpoint, set = name+"="+place(u), true
			break
		}
	}
	dns, isDNS := errors.AsType[*net.DNSError](err)
	dial, isDial := errors.AsType[*net.OpError](err)
	sent, isSent := errors.AsType[*url.Error](err)
	why := err
	switch {
	case strings.Contains(err.Error(), "get credentials: "):
		return failed("Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE."+local, err,
			"can't store the key in the table %s: there are no AWS credentials that serve: %v", table, err)
	case isDial:
		why = dial
	case isDNS:
		why = dns
	case isSent:
		why = sent.Err
	default:
		return failed("Check HOLDFAST_TABLE, the AWS credentials and region."+local, err, "can't store the key in the table %s: %v", table, err)
	}
	hint := "Is the stack up (make up)? Check AWS_ENDPOINT_URL, the AWS credentials and region." + local
	if !set {
		hint = "AWS_ENDPOINT_URL is not set, so that this is AWS itself: check the network, the AWS credentials and region." + local
	}
	return failed(hint, err, "can't store the key: could not reach the endpoint of the table %s, %s: %v", table, endpoint, why)
}

// parseExpiry reads a duration from now or a time; zero for never.
func parseExpiry(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil {
		return now.Add(d), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, usage("", "--expires %s is neither a duration (720h) nor a time (2027-01-31T00:00:00Z)", s)
	}
	return t, nil
}
