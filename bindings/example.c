// The C API from C: a least-squares fit by gradient descent, compiled once and run many times.
//   cc example.c $(pkg-config --cflags --libs nnlua) -o example && ./example
#include <nnlua/nn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Every function returns a status; nn_error() has the message.
static void check(int status) {
    if (status == NN_OK) return;
    fprintf(stderr, "nnlua: %s\n", nn_error());
    exit(1);
}

// Applies the op of this name to up to two tensors, with its first attributes given.
static nn_ref apply(const char* name, nn_ref a, nn_ref b, const nn_value* values, int n_values) {
    nn_op_info_t info;
    for (int op = 0; op < nn_op_count(); ++op) {
        check(nn_op_info(op, &info));
        if (strcmp(info.name, name) != 0) continue;
        const nn_ref inputs[2] = {a, b};
        nn_value all[16] = {0};
        memcpy(all, values, sizeof *values * (size_t)n_values);
        nn_ref out[4];
        int32_t made = 4;
        check(nn_apply(op, inputs, info.inputs, all, info.attributes, out, &made));
        return out[0];
    }
    fprintf(stderr, "unknown op '%s'\n", name);
    exit(1);
}
static nn_ref binary(const char* name, nn_ref a, nn_ref b) { return apply(name, a, b, NULL, 0); }

static nn_ref tensor(int64_t rows, int64_t cols, const float* data) {
    const int64_t shape[2] = {rows, cols};
    const nn_value values[] = {{.kind = 3, .count = 2, .list = shape}};
    const nn_ref none = {0, 0}, x = apply("empty", none, none, values, 1);
    check(nn_write(&x, data, rows * cols * (int64_t)sizeof *data));
    return x;
}

int main(void) {
    enum { rows = 64 };
    float x_data[rows][2], y_data[rows][1], w_data[2][1] = {{0}, {0}};
    for (int i = 0; i < rows; ++i) {
        x_data[i][0] = (float)i / rows, x_data[i][1] = 1;
        y_data[i][0] = 3 * x_data[i][0] - 2;  // the fit should find 3 and -2
    }
    const nn_ref x = tensor(rows, 2, x_data[0]), y = tensor(rows, 1, y_data[0]);
    const nn_ref w = tensor(2, 1, w_data[0]);
    const nn_ref rate = tensor(1, 1, &(float){-1.0f / rows});

    // w -= rate * x' (x w - y), recorded once
    check(nn_record_begin());
    const nn_ref error = binary("sub", binary("matmul", x, w), y);
    const nn_value transposed[] = {{.kind = 1, .number = 1}};  // trans_x
    const nn_ref gradient = apply("matmul", x, error, transposed, 1);
    binary("add_", w, binary("mul", gradient, rate));
    nn_ref step;
    check(nn_record_end(NULL, 0, NULL, 0, &step));

    for (int i = 0; i < 2000; ++i) check(nn_program_run(&step, NULL, 0, NULL, 0));
    check(nn_read(&w, w_data, sizeof w_data));
    printf("y = %.3f x %+.3f\n", w_data[0][0], w_data[1][0]);
    check(nn_shutdown());
    return 0;
}
