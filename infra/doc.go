// Command infra is the CDK app: it synthesizes the one stack Holdfast.
//
// It is run by the CDK command line from cdk.json (cdk deploy, cdk synth) and
// reads two kinds of input:
//
//   - the environment: every setting of [holdfast/internal/config], parsed here
//     and handed on to every function; HOLDFAST_UPSTREAM_URL (required),
//     HOLDFAST_UPSTREAM_SECRET or, against a local AWS only, HOLDFAST_UPSTREAM_KEY;
//     HOLDFAST_UPSTREAMS, more of them by model, each with its secret, and
//     HOLDFAST_UPSTREAM_ALLOW, addresses that are refused otherwise;
//     the same three of HOLDFAST_JOBS_… where jobs may start at another service;
//   - CDK context (cdk -c name=value): functions, the folder with
//     <function>/bootstrap of each function (default .local/build/<architecture>);
//     architecture, arm64 (default) or amd64; removal, retain (default) or
//     destroy, which lets the table and the buckets go with the stack; alarmEmail,
//     an address that alarms are sent to (default none); doors, on (default) or off,
//     which leaves out what starts batches from objects and messages; gateway, on
//     (default), off, or a number, how many of its requests there may be at once;
//     vpc, new or the id of one, and for that one subnets, routeTables and endpoints:
//     where the functions are that call upstreams (an example is in
//     docs/operations.md).
//
// All faults of all of them are reported at once and nothing is synthesized. All but
// whether the functions are there is judged by internal/deploy.
//
// Files are named for what they hold: storage.go (buckets, table), queue.go,
// functions.go, permissions.go (what each role may do), statemachine.go (the
// whole state machine), reap.go (its rules), api.go, ingest.go (the doors beside
// HTTP), gateway.go, network.go (the VPC and its endpoints), alarms.go, nag.go (the findings of cdk-nag that stay, each with its
// reason). Nothing outside this folder imports CDK.
package main
