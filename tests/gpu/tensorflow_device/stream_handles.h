// The streams of the fake GPU that TensorFlow's streams stand for.
#pragma once

#include <fake_cuda.h>

// `place`: where TensorFlow keeps the handle of one of its streams, inside of that.
void note_stream(const void* place, CUstream stream);
void forget_stream(CUstream stream);
