// Package extent describes the location of parts of an image. An image is guest memory in linear order, or a
// disk. A Run is a part of an image. An Extent is a run together with the range of a file that holds its content.
// A PageSet is any set of pages, one bit each. The package has the types and their arithmetic: join, split, clip
// and overlay. It does not access memory or images. Except for the page set's, file formats belong to other
// packages. Beware: in a list, an extent without a file is zeros that hide the layers below, but a gap shows the
// layers below. Only without a layer below do the two look alike.
package extent
