/*
 * empty.c - a C program that does nothing: what any program costs to start.
 */
int main(void)
{
    return 0;
}
