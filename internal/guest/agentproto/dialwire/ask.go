package dialwire

import (
	"context"
	"io"
)

// Ask sends a request on a new connection to an agent and reads the answer. If ctx ends first, it
// closes conn and returns the cause.
func Ask(ctx context.Context, conn io.ReadWriteCloser, r Request) (Code, error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err := WriteRequest(conn, r)
	var code Code
	if err == nil {
		code, err = ReadAnswer(conn)
	}
	if !stop() && err == nil {
		return 0, context.Cause(ctx)
	}
	return code, err
}
