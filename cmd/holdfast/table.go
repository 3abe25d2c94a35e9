package main

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"

	"holdfast/internal/config"
)

// openTable opens what is in the table HOLDFAST_TABLE, and gives the table's name.
func openTable[S any](ctx context.Context, a *app, open func(context.Context, string) (S, error)) (store S, table string, err error) {
	res, err := config.ParseResources(a.getenv, config.CommandLine)
	if err != nil {
		return store, "", usage("With a local stack: . .local/env. On AWS it is the stack's output TableName.", "%v", err)
	}
	store, err = open(ctx, res.Table)
	if err != nil {
		return store, "", failed("Check the AWS credentials and region.", err, "can't reach the table %s: %v", res.Table, err)
	}
	return store, res.Table, nil
}

// tableTrouble words why the table didn't do what was asked, "store the key" say.
// What the SDK says is long and names calls that nobody made.
func (a *app) tableTrouble(table, doing string, err error) error {
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
			"can't %s in the table %s: there are no AWS credentials that serve: %v", doing, table, err)
	case isDial:
		why = dial
	case isDNS:
		why = dns
	case isSent:
		why = sent.Err
	default:
		return failed("Check HOLDFAST_TABLE, the AWS credentials and region."+local, err, "can't %s in the table %s: %v", doing, table, err)
	}
	hint := "Is the stack up (make up)? Check AWS_ENDPOINT_URL, the AWS credentials and region." + local
	if !set {
		hint = "AWS_ENDPOINT_URL is not set, so that this is AWS itself: check the network, the AWS credentials and region." + local
	}
	return failed(hint, err, "can't %s: could not reach the endpoint of the table %s, %s: %v", doing, table, endpoint, why)
}
