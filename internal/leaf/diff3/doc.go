// Package diff3 merges two versions of a text line by line, against the version that both come from.
// It knows texts only, no files. Any package may call it. Beware: texts may be hostile, so the work
// is limited, and texts that differ too much count as a conflict.
package diff3
