package guesttext

import (
	"context"
	"fmt"
	"log/slog"
)

// MaxAttr limits a string in the daemon's log, in bytes. A panic's stack fits.
const MaxAttr = 16 << 10

// Handler returns a handler that clips messages and attributes before it passes them to next.
func Handler(next slog.Handler) slog.Handler { return handler{next} }

type handler struct{ slog.Handler }

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	clipped := slog.NewRecord(r.Time, r.Level, ClipLines(r.Message, MaxAttr), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clipped.AddAttrs(attr(a))
		return true
	})
	return h.Handler.Handle(ctx, clipped)
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(clipAttrs(attrs))}
}

func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }

func clipAttrs(attrs []slog.Attr) []slog.Attr {
	out := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		out[i] = attr(a)
	}
	return out
}

// attr clips an attribute's value. A value of another kind is replaced by its text only if the text is too long.
func attr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString:
		v = slog.StringValue(ClipLines(v.String(), MaxAttr))
	case slog.KindGroup:
		v = slog.GroupValue(clipAttrs(v.Group())...)
	case slog.KindAny:
		switch x := v.Any().(type) {
		case nil:
		case error:
			v = slog.StringValue(ClipLines(x.Error(), MaxAttr))
		default:
			if text := fmt.Sprintf("%+v", x); len(text) > MaxAttr {
				v = slog.StringValue(ClipLines(text, MaxAttr))
			}
		}
	}
	return slog.Attr{Key: Clip(a.Key, Max), Value: v}
}
