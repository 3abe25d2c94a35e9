// Package localstack holds the local AWS: its locked tools, the scripts that
// start, fill and end it, and the tests of those scripts. The Makefile names
// every script; people call the Makefile.
//
//	doctor.sh       what this machine lacks
//	tools.sh        Python and Node tools from their lock files, into .local/tools
//	certificate.sh  a certificate for loopback and the bundle its clients trust
//	binaries.sh     functions, CDK app, commands
//	emulator.sh     the emulator: loopback, TLS, every role's policies enforced
//	model.sh        the simulated model server
//	stack.sh        bootstrap, deploy, API key, the environment file
//	up.sh, down.sh, demo.sh, test.sh, account.sh (a real account)
//	load.sh         load runs, large.sh a large upload, each on a stack of its own
//	chaos.sh        workers killed in mid-batch, by the program in chaos/, on a stack of its own
//	upgrade.sh      a stack replaced in mid-batch, by the program in upgrade/
//	source.sh       formatting, vet, staticcheck, tests
//	function.sh     invoke a function, read its logs
//	stage.sh, settings.sh, process.py   what those share
//
// Two rules keep the stacks of one machine apart. Everything that belongs to a
// stack lies in its own folder (HOLDFAST_LOCAL) and ends with it, and a process is
// ended only when it carries the marker it was started with: a process id alone
// may be a stranger's by now.
package localstack
