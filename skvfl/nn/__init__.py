"""Networks and split training; everything in here needs torch."""

from skvfl.nn._convolution import ConvolutionalBottom

__all__ = ["ConvolutionalBottom"]
