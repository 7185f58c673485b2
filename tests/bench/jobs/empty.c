/*
 * empty.c - a C program that does nothing, to measure the cost of starting any program.
 */
int main(void)
{
    return 0;
}
