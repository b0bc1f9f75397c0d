package command

import "fmt"

// maxArg is the longest argument that Linux accepts (MAX_ARG_STRLEN), without the terminating zero
// byte.
const maxArg = 128<<10 - 1

// checkArgs returns a clear error for an argument that the kernel would refuse with a bare E2BIG.
func checkArgs(args []string) error {
	for i, a := range args {
		if len(a) > maxArg {
			return fmt.Errorf("argument %d is %d bytes, and Linux takes at most %d: "+
				"pass it on stdin or in a file", i+1, len(a), maxArg)
		}
	}
	return nil
}

// TooLong is the advice if arguments and environment together exceed the kernel's limit.
const TooLong = "arguments and environment are longer together than Linux takes " +
	"(a quarter of the stack limit, 2 MiB by default): pass data on stdin or in a file"
