// Package contexts keeps the user's contexts: names for daemons, in the file config.yaml. It parses,
// checks and writes the file. Package endpoint chooses a context, and the commands of forkd show
// and change them. The trap: the file may hold tokens, so it is readable by its owner only, and
// Context.Token must never be printed.
package contexts
