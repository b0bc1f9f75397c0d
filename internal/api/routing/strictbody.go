package routing

import (
	"fmt"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/reply"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/leaf/fieldnames"
)

// strictJSON refuses bodies with fields their type does not have.
func strictJSON() huma.Format {
	plain := huma.DefaultJSONFormat
	return huma.Format{
		Marshal: reply.Write,
		Unmarshal: func(data []byte, v any) error {
			if err := plain.Unmarshal(data, v); err != nil {
				return err
			}
			return unknownFields(fieldnames.Unknown(data, v))
		},
	}
}

// unknownFields returns an error that lists the fields, or nil if there are none.
func unknownFields(fields []fieldnames.Field) error {
	var parts []string
	for _, f := range fields {
		part := fmt.Sprintf("%s%q", apierror.UnknownField, ellipsis.Clip(f.Path, 100))
		if f.Near != "" {
			part += fmt.Sprintf(" (the nearest known one is %q)", ellipsis.Clip(f.Near, 100))
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return nil
	}
	return fmt.Errorf("%s", strings.Join(parts, "; "))
}
